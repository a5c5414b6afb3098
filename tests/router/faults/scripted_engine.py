"""An engine whose faults are switched on and off while it serves: `POST /fault`, the body its name.

    PYTHONPATH=tests python -m router.faults.scripted_engine --port 9000

It writes what the real server writes: its headers, a chunk with the role when a request is taken, a
chunk for each token, `: ping` while nothing comes, errors in their envelope. A router that asks for
notes gets them, and a stream that another engine has begun goes on after its client's last token.
"""

import argparse
import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass
from typing import Final

from yaie_api.errors import EngineError, OverloadedError, UnavailableError, YaieError
from yaie_api.http.replay import CAN_REPLAY, Identity, note, pieces_of
from yaie_api.names import HEADER_REPLAY

FAULTS: Final = (
    "none", "500", "breaks", "frozen before the head", "frozen in mid-stream", "heartbeats",
    "429", "503", "black hole",
)  # fmt: skip
TTFT_S: Final = 0.02
ITL_S: Final = 0.05
TOKENS: Final = 12
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\nx-accel-buffering: no\r\ntransfer-encoding: chunked\r\n"
)
_NOTED: Final = f"{HEADER_REPLAY}: {CAN_REPLAY}\r\n".encode()
_REFUSALS: Final[dict[str, YaieError]] = {
    "500": EngineError("The engine failed on this request."),
    "429": OverloadedError("The queue is full.", retry_after_s=1.0),
    "503": UnavailableError("The engine is draining.", retry_after_s=1.0),
}
_BACKLOG: Final = 1024


def chunk(delta: dict[str, str], finish: str | None = None, *, told: bytes = b"") -> bytes:
    """One event of a chat, in the framing of HTTP/1.1. `told`: the note that ends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    event = {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "demo",
        "choices": [choice],
    }
    data = json.dumps(event, separators=(",", ":")).encode()
    return framed(b"data: " + data + b"\n\n" + told)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TEXT: Final = "".join(f"{index} " for index in range(TOKENS))
"""What each answer says."""


@dataclass(frozen=True)
class Request:
    """A request. `identity`: as the router gives it; None: nobody wants notes."""

    path: str
    body: bytes
    identity: Identity | None

    @property
    def has_begun(self) -> bool:
        """Whether the client has the opening of the answer."""
        return self.identity is not None and self.identity.tail_bytes is not None

    @property
    def tokens(self) -> int:
        """How many tokens the client has."""
        tail = self.identity.tail_bytes if self.identity else None
        return sum(len(one.token_ids) for one in pieces_of(self.body[-tail:])) if tail else 0

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream."""
        tail = self.identity.tail_bytes if self.identity else None
        return bool(json.loads(self.body[:-tail] if tail else self.body).get("stream"))

    def note(self, *token_ids: int) -> bytes:
        """Return the note of a piece, if one is wanted."""
        return b"" if self.identity is None else note(token_ids)


async def read(reader: asyncio.StreamReader) -> Request:
    """Read one request."""
    path, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    identity = Identity.read(headers.get(HEADER_REPLAY.lower(), ""))
    return Request(path.split()[1], body, identity)


class ScriptedEngine:
    """One engine. `fault`: what is wrong with it now."""

    def __init__(self) -> None:
        self.fault = "none"
        self._sound = asyncio.Event()
        self._sound.set()
        self._fillers: list[socket.socket] = []

    async def start(self, port: int) -> int:
        """Listen; return the port."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._server = await asyncio.start_server(
            self._connected, sock=self._listener, backlog=_BACKLOG
        )
        return int(self._listener.getsockname()[1])

    async def set(self, fault: str) -> None:
        """Change what is wrong from now on."""
        self.fault = fault
        if fault == "none":
            self._sound.set()
        else:
            self._sound.clear()
        if fault == "black hole":
            self._close_to_new()
        else:
            await self._open_to_new()

    def _close_to_new(self) -> None:
        """Fill the queue of connections: the kernel drops what comes, and nobody is told."""
        loop = asyncio.get_running_loop()
        listener = self._server.sockets[0]
        loop.remove_reader(listener.fileno())
        self._listener.listen(0)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(self._listener.getsockname())
            self._fillers.append(filler)

    async def _open_to_new(self) -> None:
        if not self._fillers:
            return
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        self._listener.listen(_BACKLOG)
        self._server = await asyncio.start_server(
            self._connected, sock=self._listener.dup(), backlog=_BACKLOG
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._serve(reader, writer):
                pass
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read(reader)
        if request.path == "/fault":
            await self.set(request.body.decode())
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        if self.fault == "black hole":
            await self._sound.wait()
        if request.path == "/readyz":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return True
        return await self._answer(request, writer)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if (error := _REFUSALS.get(self.fault)) is not None:
            writer.write(_refusal(error))
            await writer.drain()
            return True
        if self.fault == "frozen before the head":
            await self._sound.wait()
        if not request.streams:
            return await self._answer_whole(writer)
        writer.write(_HEAD + (_NOTED if request.identity else b"") + b"\r\n")
        if not request.has_begun:
            writer.write(chunk({"role": "assistant", "content": ""}, told=request.note()))
        if self.fault == "heartbeats":
            await self._ping(writer)
        await asyncio.sleep(TTFT_S)
        for index in range(request.tokens, TOKENS):
            if not await self._goes_on(writer, index):
                return False
            writer.write(chunk({"content": f"{index} "}, told=request.note(index)))
            await writer.drain()
            await asyncio.sleep(ITL_S)
        writer.write(chunk({}, "stop") + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _goes_on(self, writer: asyncio.StreamWriter, index: int) -> bool:
        """Wait until the fault lets this token pass. False: it has broken the connection."""
        if self.fault == "breaks" and index >= 2:
            writer.transport.abort()
            return False
        if self.fault in ("frozen in mid-stream", "black hole") and index >= 2:
            await self._sound.wait()
        return True

    async def _answer_whole(self, writer: asyncio.StreamWriter) -> bool:
        """Answer at once, when all tokens are there."""
        await asyncio.sleep(TTFT_S)
        for index in range(TOKENS):
            if not await self._goes_on(writer, index):
                return False
            await asyncio.sleep(ITL_S)
        body = json.dumps({"choices": [{"index": 0, "message": {"content": TEXT}}]}).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        return True

    async def _ping(self, writer: asyncio.StreamWriter) -> None:
        while self.fault == "heartbeats":
            writer.write(framed(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.2)


def _refusal(error: YaieError) -> bytes:
    body = json.dumps(error.envelope()).encode()
    lines = [f"HTTP/1.1 {error.status} Refused", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in error.headers.items()]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    await ScriptedEngine().start(parser.parse_args().port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
