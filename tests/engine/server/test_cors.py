"""Pages of other origins: what a server says to their browsers, on every answer."""

from collections.abc import Iterator

import pytest

from engine.server.running import Server, serving

APP = "https://app.example"
KEY = {"authorization": "Bearer secret-key"}
PREFLIGHT = {
    "origin": APP,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("cors")
    with serving(folder, "--api-key", "secret-key", "--allowed-origins", APP) as running:
        running.wait_ready()
        yield running


def test_a_preflight_is_answered_without_a_key(server: Server) -> None:
    answer = server.call("/v1/chat/completions", method="OPTIONS", headers=PREFLIGHT)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"


def test_an_origin_that_was_not_named_is_refused(server: Server) -> None:
    asked = PREFLIGHT | {"origin": "https://evil.example"}
    answer = server.call("/v1/models", method="OPTIONS", headers=asked)
    assert (answer.status, answer.error["code"]) == (400, "origin_not_allowed")
    assert "access-control-allow-origin" not in answer.headers


def test_answers_and_errors_can_be_read(server: Server) -> None:
    for headers, status in ((KEY, 200), ({}, 401)):
        answer = server.call("/v1/models", headers=headers | {"origin": APP})
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == APP
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    answer = server.call("/v1/chat/completions", body, headers=KEY | {"origin": APP})
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.events


def test_a_question_without_a_page_has_no_such_headers(server: Server) -> None:
    answer = server.call("/v1/models", headers=KEY)
    assert (answer.status, answer.headers["vary"]) == (200, "origin")
    assert "access-control-allow-origin" not in answer.headers


def test_an_options_that_is_no_preflight_needs_a_key(server: Server) -> None:
    assert server.call("/v1/models", method="OPTIONS").status == 401
