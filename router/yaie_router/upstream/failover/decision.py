"""Whether a stream whose engine has died goes on, and where. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from yaie_router.discovery.objects import Endpoint

MOST_FRUITLESS: Final = 2
"""Engines in a row that were lost without a new token: it may be the request that ends them."""
MOST_ATTEMPTS: Final = 3
"""Attempts to have a stream go on, since its last token."""

Outcome = Literal["continued", "no_peer", "no_room", "refused", "lost", "client_left"]
"""`continued`: another engine goes on. Else the stream ends with an error event: no other engine is
healthy; all are busy with others' replays for too long; they refuse; or they, too, were lost.
`client_left`: nobody waits any more.
"""
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "continued", "no_peer", "no_room", "refused", "lost", "client_left",
)  # fmt: skip
Room = Literal["no_peer", "no_room"]


def peer(
    endpoints: Sequence[Endpoint],
    *,
    unusable: Collection[str],
    loads: Mapping[str, int],
    replays: Mapping[str, int],
    most_replays: int,
) -> Endpoint | Room:
    """Return the engine that goes on: of those that are healthy and have room, the least loaded.

    Args:
        endpoints: of the model, now.
        unusable: names of those that are lost, ejected, busy or were tried.
        loads: requests in flight at each.
        replays: how many each computes again now.
        most_replays: so many at a time.

    """
    healthy = [one for one in endpoints if one.name not in unusable]
    if not healthy:
        return "no_peer"
    free = [one for one in healthy if replays.get(one.name, 0) < most_replays]
    if not free:
        return "no_room"
    return min(free, key=lambda one: (replays.get(one.name, 0), loads.get(one.name, 0), one.name))


def may_try(*, attempts: int, fruitless: int) -> bool:
    """Whether another engine may try. `attempts`, `fruitless`: since the last token."""
    return attempts < MOST_ATTEMPTS and fruitless < MOST_FRUITLESS
