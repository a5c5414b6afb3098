"""Questions between the HTTP processes of one server: metrics, load, readiness, stored responses.

Every process listens on a unix socket in a folder that only its user can enter. A connection
carries one question and one answer, both JSON. A server with one HTTP process has no peers.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from yaie_api.errors import UnavailableError

ANSWER_S: Final = 5.0
LIMIT_BYTES: Final = 128 * 1024 * 1024


class AskMetrics(msgspec.Struct, frozen=True, tag="metrics"):
    """Ask for the metrics. The answer is a `metrics.Snapshot`."""


class AskReady(msgspec.Struct, frozen=True, tag="ready"):
    """Ask whether the process takes requests. The answer is a bool."""


class AskLoad(msgspec.Struct, frozen=True, tag="load"):
    """Ask for the number of unfinished requests. The answer is an int."""


class AskResponse(msgspec.Struct, frozen=True, tag="response"):
    """Ask for a stored response. The answer is a `Stored`, or null."""

    tenant: str
    response_id: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Delete a stored response. The answer is a bool: whether it was there."""

    tenant: str
    response_id: str


Question = AskMetrics | AskReady | AskLoad | AskResponse | Forget
_encode: Final = msgspec.json.Encoder().encode
_decode_question: Final = msgspec.json.Decoder(Question).decode


class Peers:
    """The other HTTP processes of this server. `place`: the number of this one among `count`."""

    def __init__(self, folder: Path | None = None, place: int = 0, count: int = 1) -> None:
        paths = [] if folder is None else [str(folder / f"http-{one}") for one in range(count)]
        self._own = paths.pop(place) if paths else None
        self._others = paths

    async def ask(self, question: Question, kind: Any) -> list[Any]:
        """Ask all of them, and return their answers, decoded as `kind`.

        Raises:
            UnavailableError: one of them does not answer.

        """
        if not self._others:
            return []
        encoded = _encode(question)
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await asyncio.gather(*(_asked(path, encoded) for path in self._others))
        except (OSError, TimeoutError) as error:
            raise UnavailableError(
                "Another HTTP process of this server does not answer.", retry_after_s=1.0
            ) from error
        return [msgspec.json.decode(answer, type=kind) for answer in found]

    @contextlib.asynccontextmanager
    async def answering(self, answer: Callable[[Question], Any]) -> AsyncIterator[None]:
        """Answer the questions of the others with `answer` while the context is open."""
        if self._own is None:
            yield
            return

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer):
                question = _decode_question(await reader.readuntil(b"\n"))
                writer.write(_encode(answer(question)))
                with contextlib.suppress(ConnectionError):  # the process that asked has ended
                    await writer.drain()

        async with await asyncio.start_unix_server(reply, self._own):
            yield


async def _asked(path: str, question: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=LIMIT_BYTES)
    with contextlib.closing(writer):
        writer.write(question + b"\n")
        return await reader.read()
