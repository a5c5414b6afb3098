"""Connections to engines, and one attempt to get the head and the first bytes of an answer."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What reading from an engine raises if the engine or the network fails."""
_READ_BUFFER_BYTES: Final = 16 << 10
_MOST_REFUSAL_BYTES: Final = 64 << 10
_IDLE_S: Final = 2.0

Cause = Literal["connect", "unavailable", "disconnect", "silence"]


@dataclass(frozen=True)
class Refusal:
    """An engine's own 503 answer, used if no other engine can answer."""

    headers: CIMultiDict[str]
    body: bytes


class AttemptError(Exception):
    """An engine did not send a first byte."""

    def __init__(self, cause: Cause, refusal: Refusal | None = None) -> None:
        super().__init__(cause)
        self.cause: Cause = cause
        self.refusal = refusal


class _Connection(ResponseHandler):
    """aiohttp's connection to an engine. If a body breaks, its reader gets the error: aiohttp would
    report it only to the next request, and the reader would wait for ever.
    """

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        body = self._payload
        if body is not None and not body.is_eof():
            broken = aiohttp.ClientPayloadError("The body broke.")
            body.set_exception(exc if isinstance(exc, FAILURES) else broken)
        super().set_exception(exc, *cause)


class _Connector(aiohttp.TCPConnector):
    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=_IDLE_S)
        loop = asyncio.get_running_loop()
        self._factory = partial(_Connection, loop=loop)  # type: ignore[assignment]  # invariant


def engine_session(connect_timeout_s: float) -> aiohttp.ClientSession:
    """Make a client session that relays bytes unchanged; the caller closes it.

    It closes idle connections before an engine's own keep-alive timeout (5 s) can race a request.
    """
    return aiohttp.ClientSession(
        connector=_Connector(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER_BYTES,
        trust_env=False,
    )


async def open_answer(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    body: bytes,
    headers: CIMultiDict[str],
    *,
    silence_timeout_s: float,
) -> tuple[aiohttp.ClientResponse, bytes]:
    """Send a request; return the answer's head and its first bytes. The caller closes the answer.

    Raises:
        AttemptError: the connection failed, no byte came in time, or the engine answered 503.

    """
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=session.timeout.sock_connect, sock_read=silence_timeout_s
    )
    try:
        answer = await session.request(
            method,
            URL(url, encoded=True),
            data=body or None,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        )
    except FAILURES as error:
        raise AttemptError(_cause(error)) from error
    try:
        if answer.status != 503:
            return answer, await answer.content.readany()
        refusal = await _beginning(answer.content)
    except FAILURES as error:
        answer.close()
        raise AttemptError(_cause(error)) from error
    except BaseException:
        answer.close()
        raise
    answer.close()
    kept = CIMultiDict(answer.headers)
    kept.popall("content-length", None)
    raise AttemptError("unavailable", Refusal(kept, refusal))


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """Read the whole body, or the beginning of a very long one."""
    found = b""
    while len(found) < _MOST_REFUSAL_BYTES and (data := await content.readany()):
        found += data
    return found[:_MOST_REFUSAL_BYTES]


def _cause(error: Exception) -> Cause:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "connect"
    if isinstance(error, TimeoutError):
        return "silence"
    return "disconnect"
