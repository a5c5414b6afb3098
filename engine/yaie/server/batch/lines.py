"""Runs the lines of an OpenAI batch file: each is a request, answered by the output's same line.

The requests are sent to the application of a server, without a socket, so the answers are the same.
A bounded number runs at once. A request that is refused with 429 or 503 is tried again, as a client
would do.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message

from yaie.server.batch.parse import Line, id_of, parse_line
from yaie_api.errors import YaieError

CONCURRENCY: Final = 256
AHEAD: Final = 4
"""Lines read ahead of the one that is written next, as a multiple of the concurrency."""
ATTEMPTS: Final = 8
MAX_DEATHS: Final = 1
"""A request that was in the engine when it died may be the cause, so it is tried only once more."""
RETRYABLE: Final = (429, 503)

_json: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the output. `completion_tokens` is for the progress bar."""

    line: bytes
    ok: bool
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the application."""

    status: int
    headers: dict[str, str]
    body: bytes


class Batch:
    """Runs lines through an application.

    `finished`: called with each result as it comes, in any order. `wait`: awaited before a request
    is tried again, with the seconds of its Retry-After.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        concurrency: int = CONCURRENCY,
        finished: Callable[[Result], None] = lambda _: None,
        wait: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._app = app
        self._finished = finished
        self._wait = wait
        self._gate = asyncio.Semaphore(concurrency)
        self._ahead = AHEAD * concurrency

    async def run(self, lines: Iterable[str], write: Callable[[Result], None]) -> None:
        """Run every line that is not blank, and write the results in the lines' order."""
        pending: deque[asyncio.Task[Result]] = deque()
        try:
            for number, text in enumerate(lines, start=1):
                if not text.strip():
                    continue
                pending.append(asyncio.ensure_future(self._one(number, text)))
                if len(pending) >= self._ahead:
                    write(await pending.popleft())
            while pending:
                write(await pending.popleft())
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _one(self, number: int, text: str) -> Result:
        result = await self._result(number, text)
        self._finished(result)
        return result

    async def _result(self, number: int, text: str) -> Result:
        try:
            line = parse_line(text)
        except YaieError as error:
            return _refused(id_of(text), error, number)
        async with self._gate:
            response = await self._answer(line)
        return _answered(line, response)

    async def _answer(self, line: Line) -> Response:
        deaths = 0
        for _ in range(ATTEMPTS):
            response = await call(self._app, line.url, _json(line.body))
            deaths += b'"code":"engine_died"' in response.body
            if response.status not in RETRYABLE or deaths > MAX_DEATHS:
                break
            await self._wait(float(response.headers.get("retry-after", 1)))
        return response


async def call(app: ASGIApp, path: str, body: bytes) -> Response:
    """POST a JSON body to an application in this process, as a client that never leaves."""
    sent: list[Message] = []
    bodies = [body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(_scope(path), receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0].get("headers", ())}
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Response(int(sent[0]["status"]), headers, content)


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }


def _answered(line: Line, response: Response) -> Result:
    body = msgspec.json.decode(response.body)
    usage = body.get("usage") or {}
    tokens = usage.get("completion_tokens", usage.get("output_tokens", 0))
    answer = {
        "status_code": response.status,
        "request_id": response.headers.get("x-request-id", ""),
        "body": msgspec.Raw(response.body),
    }
    ok = response.status == 200
    return Result(_line(line.custom_id, answer, None), ok, tokens)


def _refused(custom_id: str | None, error: YaieError, number: int) -> Result:
    reason = {
        "code": error.code or "invalid_line",
        "message": error.message,
        "param": error.param,
        "line": number,
    }
    return Result(_line(custom_id, None, reason), ok=False)


def _line(custom_id: str | None, response: Any, error: Any) -> bytes:
    return _json(
        {
            "id": f"batch_req_{uuid.uuid4().hex}",
            "custom_id": custom_id,
            "response": response,
            "error": error,
        }
    )
