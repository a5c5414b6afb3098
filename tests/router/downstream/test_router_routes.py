"""The router's paths: each has a bounded name, and all that an engine computes is among them."""

import pytest

from yaie.server.routes import ENDPOINTS
from yaie_router import routes


@pytest.mark.parametrize(
    ("path", "route", "response_id"),
    [
        ("/v1/responses", "/v1/responses", ""),
        ("/v1/responses/resp_1", routes.STORED, "resp_1"),
        ("/v1/responses/resp_1/cancel", routes.CANCEL, "resp_1"),
        ("/v1/responses/resp_1/input_items", routes.INPUT_ITEMS, "resp_1"),
        ("/v1/responses/input_tokens", "/v1/responses/input_tokens", ""),
        ("/v1/responses/input_items", routes.STORED, "input_items"),
        ("/v1/models", routes.MODELS, ""),
        ("/v1/models/org/big", routes.ONE_MODEL, ""),
        ("/v1/chat/completions", "/v1/chat/completions", ""),
    ],
)
def test_a_path_has_a_route_with_a_bounded_name(path: str, route: str, response_id: str) -> None:
    assert routes.route_of(path) == route
    assert routes.response_id_in(path) == response_id


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/",
        "/v1/responses/a/b",
        "/v1/responses/a/cancel/",
        "/v1/responses/../models",
        "/v1/responses/a b",
        "/v1/responses/a\r\nx: y",
        "/v1/responses/" + "a" * 129,
        "/v1/responses/é",
    ],
)
def test_what_could_not_be_an_id_is_no_route(path: str) -> None:
    assert routes.route_of(path) == path
    assert routes.response_id_in(path) == ""


def test_every_path_on_which_an_engine_works_is_forwarded() -> None:
    stored = {routes.STORED, routes.CANCEL, routes.INPUT_ITEMS}
    worked_on = {path for one in ENDPOINTS if one.body is not None for path in one.paths}
    assert set(routes.FORWARDED) == worked_on
    assert stored == {path for one in ENDPOINTS for path in one.paths if "{response_id}" in path}
