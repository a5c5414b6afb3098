"""Chooses the engine of a request by the tokens that it would have to compute there. Pure.

    cost of an engine = 2 * prompt tokens that it lacks + tokens that wait there

A cost alone goes wrong at both ends. Nobody queues at low load, so the first engine that has a
system prompt would get every conversation that begins with it, and evict them in turn while the
other caches stay empty; a weight on load that is large enough against this tears conversations from
their caches. So matches are of two kinds. A conversation goes on where it was, and leaves only for
a cost. A prefix from which many requests *branch* (a system prompt, a document) may be computed
again where that keeps the engines balanced: once for each engine, and what follows is free.

Every router comes to the same choice from the same reports: what is left equal is decided by
rendezvous hashing of a key and the engine's name. The key of a conversation is its home; the key of
a new prefix or a branch is the first one that no engine has. So a router that does not know yet
where another one has just sent a document sends the next request about it there, too.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

LEAD: Final = 0.35
LEAD_REQUESTS: Final = 12.0
"""An engine that has had this share and so many requests more than the one with fewest gets no new
prefixes, and no branches. Measured by the mean, one of many engines could stay empty for ever: what
the others have beyond their share is then too little to be seen.
"""
MEAN_SLACK: Final = 0.05
MEAN_REQUESTS: Final = 1.0
"""Of engines that are as good otherwise, those within this share and so many requests of the mean
come first.
"""
NEAR_TOKENS: Final = 64
"""Costs that differ by less are equal: a match is known to some pages only."""
CLOSE: Final = 0.6
CLOSE_TOKENS: Final = 512
"""Costs of new prefixes and branches are equal within this share of the least one, or so many
tokens. Routers that know different requests of the last moments still choose the same engine.
"""
OTHERS: Final = 2.0
"""What a token that is computed again costs: it delays this request, and those behind it."""
FULL_BATCH: Final = 8
"""Requests that an engine computes beside each other without a delay worth a name."""
REQUEST_TOKENS: Final = 128
"""What one request more than that costs those that come after it, in prompt tokens."""

Reason = Literal["cached", "balanced", "spread", "spilled"]


class Option(msgspec.Struct, frozen=True):
    """An engine that may get the request.

    Attributes:
        name: the endpoint's.
        missing: prompt tokens that it would have to compute.
        queued: prompt tokens that wait there to be computed.
        in_flight: requests that this router has sent there.
        recent: requests that it got lately, from all routers.

    """

    name: str
    missing: int
    queued: int = 0
    in_flight: int = 0
    recent: float = 0.0

    @property
    def cost(self) -> int:
        """In prompt tokens."""
        return int(OTHERS * self.missing) + self.wait

    @property
    def wait(self) -> int:
        """What the requests there cost this one, in prompt tokens."""
        return self.queued + REQUEST_TOKENS * max(0, self.in_flight - FULL_BATCH)


class Placement(msgspec.Struct, frozen=True):
    """The choice, and why it is, or is not, an engine with most of the prompt.

    `reason`: it has most of the prompt (cached); all have as much (balanced); others have more, but
    many requests branch there, and it has had less than its share (spread); others have more, but
    too much waits there (spilled).
    """

    option: Option
    reason: Reason


def place(options: Sequence[Option], *, key: int, is_free: bool) -> Placement:
    """Choose one of the options, of which there is one at least.

    `key`: for ties. `is_free`: no engine has more of the prompt than what many
    requests branch from, so balance counts more than the match.
    """
    allowed, tolerance = options, float(NEAR_TOKENS)
    if is_free:
        allowed = _without_leaders(options)
    least = min(one.cost for one in allowed)
    if is_free:
        tolerance = max(CLOSE_TOKENS, CLOSE * least)
    near = [one for one in allowed if one.cost < least + tolerance]
    fewest = min(one.missing for one in near)
    near = [one for one in near if one.missing < fewest + NEAR_TOKENS]
    if is_free:
        mean = sum(one.recent for one in options) / len(options)
        most = (1 + MEAN_SLACK) * mean + MEAN_REQUESTS
        near = [one for one in near if one.recent <= most] or near
    chosen = max(near, key=lambda one: _weight(key, one.name)) if len(near) > 1 else near[0]
    return Placement(chosen, _reason(chosen, options, is_free=is_free))


def _without_leaders(options: Sequence[Option]) -> list[Option]:
    """All but those that got far more than the one with fewest. One where more waits than twice
    the prompt is behind for a reason: it came back, say, and all that is new went there already.
    """
    queue = OTHERS * max(one.missing for one in options)
    free = [one for one in options if one.wait <= queue] or options
    most = (1 + LEAD) * min(one.recent for one in free) + LEAD_REQUESTS
    return [one for one in options if one.recent <= most]


def _reason(chosen: Option, options: Sequence[Option], *, is_free: bool) -> Reason:
    fewest = min(one.missing for one in options)
    if chosen.missing >= fewest + NEAR_TOKENS:
        return "spread" if is_free else "spilled"
    return "balanced" if all(one.missing == fewest for one in options) else "cached"


def _weight(key: int, name: str) -> bytes:
    text = key.to_bytes(8, "big") + name.encode()
    return hashlib.blake2b(text, digest_size=8).digest()
