"""Which headers the router forwards: end-to-end ones, but no hop-by-hop ones, and of its own only
those that are for engines.
"""

import math
import os
import re
from collections.abc import Mapping
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

from yaie_api.errors import DeadlineExceededError
from yaie_api.http.access.keys import KEY_HEADERS
from yaie_api.names import (
    HEADER_ENDPOINT,
    HEADER_PREFIX,
    HEADER_REQUEST_ID,
    HEADER_TENANT,
    HEADER_TIMEOUT,
    HEADER_USAGE,
)

_HOP_BY_HOP: Final = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_NOT_FORWARDED: Final = _HOP_BY_HOP | {"host", "content-length", "expect", HEADER_REQUEST_ID}
_KEYS: Final = frozenset(name.decode() for name in KEY_HEADERS)
_NOT_RETURNED: Final = _HOP_BY_HOP | {"server", "date", HEADER_REQUEST_ID}
_FOR_ENGINES: Final = frozenset((HEADER_TIMEOUT,))
"""Of our own headers, those that a client may send to an engine."""
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def request_id(headers: CIMultiDictProxy[str]) -> str:
    """Return the client's request id if it is harmless in logs and headers, else a new one."""
    given = headers.get(HEADER_REQUEST_ID, "")
    return given if _SAFE_ID.fullmatch(given) else os.urandom(16).hex()


def to_engine(
    headers: CIMultiDictProxy[str], identity: str, *, with_keys: bool = True, tenant: str = ""
) -> CIMultiDict[str]:
    """Return the headers of a client's request that go to the engine. `with_keys`: the API key,
    too; without it where the router has checked it. `tenant`: whose key it is.
    """
    dropped = _NOT_FORWARDED if with_keys else _NOT_FORWARDED | _KEYS
    out = _crossing(headers, dropped, _FOR_ENGINES)
    out[HEADER_REQUEST_ID] = identity
    out[HEADER_USAGE] = "1"
    if tenant:
        out[HEADER_TENANT] = tenant
    return out


def time_limit_s(headers: Mapping[str, str]) -> float:
    """Return the time limit that a client sets, in seconds; infinite if it sets none. One that is
    no positive number is refused by the engine.
    """
    try:
        seconds = float(headers.get(HEADER_TIMEOUT, "inf"))
    except ValueError:
        return math.inf
    return seconds if seconds > 0 else math.inf


def shorten(headers: CIMultiDict[str], left_s: float) -> None:
    """Tell the engine what is left of the client's time limit; infinite: it has set none.

    Raises:
        DeadlineExceededError: nothing is left.

    """
    if left_s <= 0:
        raise DeadlineExceededError("The request's time limit passed while it waited.")
    if left_s < math.inf:
        headers[HEADER_TIMEOUT] = f"{left_s:.3f}"


def to_client(
    headers: CIMultiDictProxy[str], identity: str, endpoint: str, *, retried: bool
) -> CIMultiDict[str]:
    """Return the headers of an engine's answer that go to the client, Content-Length included."""
    out = _crossing(headers, _NOT_RETURNED)
    out[HEADER_REQUEST_ID] = identity
    out[HEADER_ENDPOINT] = endpoint
    if retried:
        out["x-should-retry"] = "false"  # client libraries would multiply our retries by theirs
    return out


def add_headers(headers: CIMultiDict[str], more: Mapping[str, str]) -> None:
    """Set headers of a response; what caches must look at (`vary`) is added to what is there."""
    for name, value in more.items():
        if name == "vary":
            headers.add(name, value)
        else:
            headers[name] = value


def _crossing(
    headers: CIMultiDictProxy[str], dropped: frozenset[str], ours: frozenset[str] = frozenset()
) -> CIMultiDict[str]:
    """Return the headers that cross. `ours`: those with our prefix that may.

    What `Connection` names beside the known hop-by-hop headers crosses, as in nginx, HAProxy and
    Envoy: a client could name the header by which a proxy before us tells whose request it is.
    """
    return CIMultiDict(
        [
            (name, value)
            for name, value in headers.items()
            if (low := name.lower()) not in dropped
            and (not low.startswith(HEADER_PREFIX) or low in ours)
        ]
    )
