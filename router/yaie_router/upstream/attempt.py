"""Connections to engines, and one attempt to get the head and the first token of an answer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp
import msgspec
from multidict import CIMultiDict

from yaie_router.discovery.objects import Endpoint
from yaie_router.health.exhaustion import is_own
from yaie_router.health.outlier_detection import Cause
from yaie_router.upstream.delivery.progress import shows_tokens
from yaie_router.upstream.http1.connection import BrokenError, Connection
from yaie_router.upstream.http1.head import ResponseHead
from yaie_router.upstream.http1.pool import IDLE_S, Pool

_MOST_REFUSAL_BYTES: Final = 64 << 10
_MOST_HELD_BYTES: Final = 64 << 10
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


class Request(msgspec.Struct, frozen=True):
    """What goes to an engine. `target`: path and query."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """The head and the beginning of an answer, and the connection that its rest comes from.

    `has_tokens`: a stream's first token is in it; if not, it was held back as long as it may be.
    """

    head: ResponseHead
    connection: Connection
    first: bytes
    has_tokens: bool = True


def probe_session(connect_timeout_s: float) -> aiohttp.ClientSession:
    """Make a client session that asks engines whether they are ready; the caller closes it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


async def open_answer(
    pool: Pool,
    endpoint: Endpoint,
    request: Request,
    *,
    hold_s: float,
) -> Answer:
    """Send a request; return the answer up to its first token. The caller gives the answer's
    connection back to the pool.

    The head of a stream, its comments and the events that open it are held back until the first
    token comes, so that another engine can still take the request over; after `hold_s` they are
    returned as they are, for the sake of clients and proxies that time out.

    Raises:
        AttemptError: the connection failed, or the engine answered that it cannot (429, 5xx).

    """
    began_s = time.monotonic()
    try:
        connection = await pool.take(endpoint.address, endpoint.port)
    except (OSError, TimeoutError) as error:
        cause: AttemptCause = "exhausted" if is_own(error) else "connect"
        raise AttemptError(cause) from error
    try:
        connection.send(request.method, request.target, request.headers.items(), request.body)
        head = await connection.head()
        if (refusal := refused(head.status, head.headers)) is None:
            answer = Answer(head, connection, await connection.read())
            if head.is_events and head.status == 200:
                answer = await _first_token(answer, began_s + hold_s)
            return answer
        body = await _beginning(connection)
    except BrokenError as error:
        connection.close()
        raise AttemptError("disconnect") from error
    except BaseException:
        connection.close()
        raise
    pool.give_back(connection)
    kept = CIMultiDict(head.headers)
    kept.popall("content-length", None)
    raise AttemptError(refusal, Refusal(head.status, kept, body))


def refused(status: int, headers: Mapping[str, str]) -> Literal["5xx", "busy"] | None:
    """Return why this answer makes the router ask another engine; None: it is the client's.

    504 is the end of the time that the client gave, and 501 what no engine does.
    """
    if status == 429 or (status == 503 and "retry-after" in headers):
        return "busy"
    return "5xx" if status >= 500 and status not in (501, 504) else None


async def _first_token(answer: Answer, until_s: float) -> Answer:
    held, connection = answer.first, answer.connection
    while not shows_tokens(held):
        if len(held) > _MOST_HELD_BYTES or time.monotonic() > until_s:
            return Answer(answer.head, connection, held, has_tokens=False)
        if not (data := await connection.read()):
            break
        held += data
    return Answer(answer.head, connection, held)


async def _beginning(connection: Connection) -> bytes:
    """Read the whole body, or the beginning of a very long one."""
    found = b""
    while len(found) < _MOST_REFUSAL_BYTES and (data := await connection.read()):
        found += data
    return found[:_MOST_REFUSAL_BYTES]
