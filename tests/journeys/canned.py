"""A server that shows the page and answers every question with the events that it was given."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from yaie_api.http import pages


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a chat's stream."""
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


@contextlib.contextmanager
def answering(
    *events: dict[str, Any],
    ends: bool = True,
    models: list[dict[str, Any]] | None = None,
    refusal: dict[str, Any] | None = None,
) -> Iterator[str]:
    """Its URL. Without `ends` a stream breaks off. `refusal`: all it answers, with a 400."""
    listed = {"data": models or [{"id": "canned", "state": "ready"}]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == pages.CHAT:
                found = pages.reply(pages.CHAT)
                self._answer(found.headers, found.body)
            else:
                self._answer({"content-type": "application/json"}, json.dumps(listed).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if refusal is not None:
                body = json.dumps({"error": refusal}).encode()
                self._answer({"content-type": "application/json"}, body, 400)
                return
            lines = [json.dumps(event) for event in events] + ["[DONE]"] * ends
            stream = "".join(f": comment\r\ndata: {line}\r\n\r\n" for line in lines)
            self._answer({"content-type": "text/event-stream"}, stream.encode())

        def _answer(self, headers: dict[str, str], body: bytes, status: int = 200) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing to tell."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
