"""Connections to engines, and one attempt to get the head and the first token of an answer."""

import asyncio
import errno
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from yaie_router.health.outlier_detection import Cause
from yaie_router.upstream.progress import shows_tokens

FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What reading from an engine raises if the engine or the network fails."""
_READ_BUFFER_BYTES: Final = 16 << 10
_MOST_REFUSAL_BYTES: Final = 64 << 10
_LARGE_BYTES: Final = 1 << 20
_MOST_HELD_BYTES: Final = 64 << 10
_IDLE_S: Final = 2.0
_OWN_ERRNOS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)
"""What the router itself is out of: descriptors, memory, ports. No engine is to blame."""

AttemptCause = Cause | Literal["exhausted"]


@dataclass(frozen=True)
class Refusal:
    """An engine's own 429 or 5xx answer, used if no other engine can answer."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


class AttemptError(Exception):
    """An engine did not answer, or said that it cannot. `exhausted`: the router could not ask."""

    def __init__(self, cause: AttemptCause, refusal: Refusal | None = None) -> None:
        super().__init__(cause)
        self.cause: AttemptCause = cause
        self.refusal = refusal


@dataclass(frozen=True)
class Answer:
    """The head and the beginning of an answer.

    `has_tokens`: a stream's first token is in it; if not, it was held back as long as it may be.
    """

    response: aiohttp.ClientResponse
    first: bytes
    has_tokens: bool = True

    @property
    def is_events(self) -> bool:
        return self.response.content_type == "text/event-stream"


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
    hold_s: float,
) -> Answer:
    """Send a request; return the answer up to its first token. The caller closes the answer.

    The head of a stream, its comments and the events that open it are held back until the first
    token comes, so that another engine can still take the request over; after `hold_s` they are
    returned as they are, for the sake of clients and proxies that time out.

    Raises:
        AttemptError: the connection failed, or the engine answered that it cannot (429, 5xx).

    """
    began_s = time.monotonic()
    try:
        response = await session.request(
            method,
            URL(url, encoded=True),
            data=_payload(body),
            headers=headers,
            allow_redirects=False,
        )
    except FAILURES as error:
        raise AttemptError(_cause(error)) from error
    try:
        cause = refused(response.status, response.headers)
        if cause is None:
            answer = Answer(response, await response.content.readany())
            if answer.is_events and response.status == 200:
                answer = await _first_token(answer, began_s + hold_s)
            return answer
        refusal = await _beginning(response.content)
    except FAILURES as error:
        response.close()
        raise AttemptError(_cause(error)) from error
    except BaseException:
        response.close()
        raise
    response.close()
    kept = CIMultiDict(response.headers)
    kept.popall("content-length", None)
    raise AttemptError(cause, Refusal(response.status, kept, refusal))


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """The body as aiohttp likes it: a large one as a file, which it writes in pieces."""
    return (body if len(body) < _LARGE_BYTES else io.BytesIO(body)) or None


def refused(status: int, headers: Mapping[str, str]) -> Literal["5xx", "busy"] | None:
    """Return why this answer makes the router ask another engine; None: it is the client's.

    504 is the end of the time that the client gave, and 501 what no engine does.
    """
    if status == 429 or (status == 503 and "retry-after" in headers):
        return "busy"
    return "5xx" if status >= 500 and status not in (501, 504) else None


async def _first_token(answer: Answer, until_s: float) -> Answer:
    held, content = answer.first, answer.response.content
    while not shows_tokens(held):
        if len(held) > _MOST_HELD_BYTES or time.monotonic() > until_s:
            return Answer(answer.response, held, has_tokens=False)
        if not (data := await content.readany()):
            break
        held += data
    return Answer(answer.response, held)


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """Read the whole body, or the beginning of a very long one."""
    found = b""
    while len(found) < _MOST_REFUSAL_BYTES and (data := await content.readany()):
        found += data
    return found[:_MOST_REFUSAL_BYTES]


def _cause(error: Exception) -> AttemptCause:
    if getattr(error, "errno", None) in _OWN_ERRNOS:
        return "exhausted"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "connect"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "disconnect"
