"""A web page of another origin uses a server where `--allowed-origins` names it, and only there."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.server.running import serving
from fakes.running_up import model_file, up
from journeys.browser import Browser

pytestmark = pytest.mark.journey

KEY = "sesame"
SCRIPT = """
const [url, key, model] = arguments;
return fetch(`${url}/v1/chat/completions`, {
  method: "POST",
  headers: { "authorization": `Bearer ${key}`, "content-type": "application/json" },
  body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "hello" }] }),
}).then(async (answer) => [answer.status, answer.headers.get("x-request-id"), await answer.text()],
  (error) => [0, null, String(error)]);
"""


class _Page(http.server.BaseHTTPRequestHandler):
    """An empty page without a policy of its own."""

    def do_GET(self) -> None:
        body = b"<!doctype html><link rel=icon href='data:,'><title>app</title>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def app() -> Iterator[str]:
    """The origin of a page that is none of ours."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def served(kind: str, folder: Path, *arguments: str) -> Iterator[tuple[str, str]]:
    """A server with a key: its URL, and a model's name."""
    if kind == "serve":
        with serving(folder, "--api-key", KEY, *arguments) as server:
            server.wait_ready()
            yield server.url, "stub"
    else:
        file = str(model_file(folder))
        with up(folder / "state", "-f", file, "--api-key", KEY, *arguments) as running:
            running.wait_for("Ctrl-C")
            yield f"http://127.0.0.1:{running.port}", "demo"


def fetched(page: Browser, app: str, url: str, model: str, key: str = KEY) -> Any:
    page.go(app)
    return page.run(SCRIPT, url, key, model)


@pytest.mark.parametrize("kind", ["serve", "up"])
def test_a_page_of_an_allowed_origin_streams_an_answer(
    page: Browser, app: str, tmp_path: Path, kind: str
) -> None:
    with served(kind, tmp_path, "--allowed-origins", app) as (url, model):
        status, request_id, text = fetched(page, app, url, model)
        assert (status, text.rstrip().endswith("data: [DONE]")) == (200, True)
        assert request_id
        status, _, text = fetched(page, app, url, model, key="wrong")
        assert status == 401
        assert "A valid API key is required" in text
        assert any("401" in one for one in page.errors())


@pytest.mark.parametrize("kind", ["serve", "up"])
@pytest.mark.parametrize("arguments", [[], ["--allowed-origins", "https://app.example"]])
def test_a_page_of_another_origin_reads_nothing(
    page: Browser, app: str, tmp_path: Path, kind: str, arguments: list[str]
) -> None:
    with served(kind, tmp_path, *arguments) as (url, model):
        status, _, error = fetched(page, app, url, model)
        assert (status, error) == (0, "TypeError: Failed to fetch")
        assert any("CORS policy" in one for one in page.errors())
