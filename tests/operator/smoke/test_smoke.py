"""The pod of `helm test` passes with an answer only, and otherwise says what is in the way."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from yaie_operator.smoke import __main__ as smoke

Serve = Callable[..., str]
CHUNK = {"choices": [{"delta": {"content": "Water."}}]}


def stream(*events: object) -> str:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
    return "".join(f"data: {line}\n\n" for line in lines)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A router that gives the answers one after the other, the last for ever."""
    servers = []

    def start(*answers: tuple[int, str]) -> str:
        left = list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert (self.path, asked["model"]) == ("/v1/chat/completions", "demo")
                status, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "RETRY_S", 0.05)


def run(url: str, *, timeout_s: float = 0.2) -> int:
    return smoke.main([url, "--model", "demo", "--timeout-s", str(timeout_s)])


def test_it_waits_for_the_model_and_shows_what_it_said(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    loading = json.dumps({"error": {"message": "demo starts: 0 of 1 engine ready."}})
    url = serve((503, loading), (503, loading), (200, stream(CHUNK, "[DONE]")))
    assert run(url, timeout_s=20) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == "waiting: 503: demo starts: 0 of 1 engine ready."
    assert last.endswith("'Water.'")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, '{"error": {"message": "No model demo."}}', "404: No model demo."),
        (502, "<html>bad gateway</html>", "502: <html>bad gateway"),
        (200, stream(CHUNK), "the stream ended early"),
        (200, stream({"error": {"message": "lost"}}, "[DONE]"), "the stream failed: lost"),
        (200, stream({"choices": [{"delta": {}}]}, "[DONE]"), "the answer has no text"),
    ],
)
def test_what_is_no_answer_fails_with_a_sentence(
    serve: Serve,
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: str,
    why: str,
) -> None:
    assert run(serve((status, body))) == 1
    told = capsys.readouterr().out
    assert f"At last: {why}" in told
    assert "kubectl describe ym" in told


def test_a_router_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("http://127.0.0.1:1/v1") == 1
    assert "no router answers at 127.0.0.1:1: " in capsys.readouterr().out
