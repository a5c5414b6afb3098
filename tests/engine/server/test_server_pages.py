"""`yaie serve` answers people with pages, and programs as ever."""

from collections.abc import Iterator

import pytest

from engine.server.running import Server, serving
from yaie_api.http import pages

KEY = {"authorization": "Bearer secret-key"}
HTML = {"accept": "text/html,*/*;q=0.8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pages")
    with serving(folder, "--admin", "--api-key", "secret-key") as running:
        running.wait_ready()
        yield running


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_needs_no_key_and_comes_with_its_headers(server: Server, path: str) -> None:
    answer = server.call(path, headers=HTML)
    assert answer.status == 200
    assert answer.body == pages.reply(path).body
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_head_has_the_headers_and_no_body(server: Server, path: str) -> None:
    answer = server.call(path, method="HEAD", headers=HTML)
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) == len(pages.reply(path).body)


def test_a_browser_that_has_the_page_gets_304(server: Server) -> None:
    tag = server.call("/", headers=HTML).headers["etag"]
    answer = server.call("/", headers=HTML | {"if-none-match": tag})
    assert (answer.status, answer.body) == (304, b"")


def test_a_program_at_the_root_is_answered_as_ever(server: Server) -> None:
    assert server.call("/").error["code"] == "invalid_api_key"
    answer = server.call("/", headers=KEY)
    assert (answer.status, answer.error["code"]) == (404, "path_not_found")


def test_what_the_page_asks_for_needs_the_key(server: Server) -> None:
    for path in ("/v1/models", "/metrics"):
        assert server.call(path, headers=HTML).status == 401
        assert server.call(path, headers=HTML | KEY).status == 200
    assert server.call("/", b"{}", headers=HTML).status == 401
    assert server.call("/", b"{}", headers=HTML | KEY).status == 405


def test_the_admin_port_has_no_page(server: Server) -> None:
    for path in ("/", "/docs"):
        refused = server.call(path, headers=HTML, port=server.admin_port)
        assert refused.error["code"] == "invalid_api_key"
        missing = server.call(path, headers=HTML | KEY, port=server.admin_port)
        assert missing.status == 404


def test_a_page_is_no_path_of_the_api(server: Server) -> None:
    described = server.call("/openapi.json", headers=KEY).json
    assert not {"/", "/docs"} & described["paths"].keys()


def test_models_are_listed_with_their_tasks_and_state(server: Server) -> None:
    card = server.call("/v1/models", headers=KEY).json["data"][0]
    assert card["tasks"] == ["generate", "embed"]
    assert card["state"] == "ready"
    assert "reason" not in card
