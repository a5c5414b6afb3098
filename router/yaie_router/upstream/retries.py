"""Whether a request that no answer has begun for may be sent to another engine. Pure."""

from typing import Final

from yaie_router.upstream.attempt import AttemptCause

MAX_ATTEMPTS: Final = 3
_MOST_ATTEMPTS: Final[dict[AttemptCause, int]] = {
    # It may be the request that ends engines or fails in them: two engines are enough.
    "disconnect": 2,
    "5xx": 2,
    "timeout": 2,  # and the client has waited long enough
    "exhausted": 0,  # no engine can help a router without descriptors
}


def others_may_take(cause: AttemptCause, attempts: int, *, has_others: bool) -> bool:
    """Whether another attempt is allowed after `attempts` of them, the last of which failed.

    `has_others`: there is an engine that was not tried. A lost connection may have been an idle one
    that closed, so there even the same engine may take the request.
    """
    if attempts >= _MOST_ATTEMPTS.get(cause, MAX_ATTEMPTS):
        return False
    return has_others or cause == "disconnect"
