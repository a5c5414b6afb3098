"""The connection to an engine: one try to get the head and the first bytes of an answer."""

from dataclasses import dataclass
from typing import Final, Literal

import aiohttp
from multidict import CIMultiDict
from yarl import URL

FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What reading from an engine raises when the engine or the way to it fails."""
_READ_BUFFER_BYTES: Final = 16 << 10
_MOST_REFUSAL_BYTES: Final = 64 << 10
_IDLE_S: Final = 2.0

Cause = Literal["connect", "unavailable", "disconnect", "silence"]


@dataclass(frozen=True)
class Refusal:
    """An engine's own 503, kept in case nobody else can answer."""

    headers: CIMultiDict[str]
    body: bytes


class AttemptError(Exception):
    """An engine gave no first byte."""

    def __init__(self, cause: Cause, refusal: Refusal | None = None) -> None:
        super().__init__(cause)
        self.cause: Cause = cause
        self.refusal = refusal


def engine_session(connect_timeout_s: float) -> aiohttp.ClientSession:
    """A client session for raw relaying; the caller closes it.

    Idle connections are dropped before an engine's own keep-alive timeout (5 s) can race a request.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
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
    """The answer's head together with its first bytes; the caller closes it. Raises AttemptError
    on failures and on 503.
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
        refusal = await answer.content.read(_MOST_REFUSAL_BYTES)
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


def _cause(error: Exception) -> Cause:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "connect"
    if isinstance(error, TimeoutError):
        return "silence"
    return "disconnect"
