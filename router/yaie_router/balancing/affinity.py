"""Chooses the engine of a request: filter → score → pick, without state, clock or I/O.

Prefix affinity is consistent hashing with bounded loads: the request's home key names a point on a
ring of virtual nodes, and the walk from there stops at the first endpoint whose load stays within
`load_factor` times the mean, or is light. Adding or removing one of n endpoints moves about 1/n of
the keys.
"""

import hashlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import msgspec

from yaie_router.discovery.objects import Endpoint, Policy

VIRTUAL_NODES: Final = 128
"""Points of each endpoint on the ring. With 128, the largest share of 8 is near 1.2 fair shares."""

MOST_NODES: Final = 1 << 20
"""Of all rings that are kept: 12 MiB, enough for 1,000 models with 8 engines each."""
LIGHT_LOAD: Final = 8
"""An engine with fewer requests is not loaded, whatever the mean: it computes them in one batch.
With a bound of `ceil(load_factor * mean)` alone, 3 clients of 4 engines left their homes in 40 % of
picks, and computed their prompts again.
"""

Outcome = Literal["home", "spilled", "balanced", "stored", "cached", "spread"]


class Decision(msgspec.Struct, frozen=True):
    """The chosen endpoint, and why: it is the home; the home is loaded or unusable (spilled); the
    policy balances; it has the stored response; or what engines publish says so
    (`prefixes.policy`: cached, balanced, spread, spilled).
    """

    endpoint: Endpoint
    outcome: Outcome


@dataclass(frozen=True)
class Ring:
    """Virtual nodes in hash order: `points[i]` belongs to `names[owners[i]]`. 12 bytes each."""

    names: tuple[str, ...]
    points: "array[int]"
    owners: "array[int]"

    def walk(self, key: int) -> Iterator[str]:
        """Yield each owner once, in ring order from the key on."""
        start = bisect_right(self.points, _mix(key))
        seen: set[int] = set()
        for i in range(len(self.owners)):
            owner = self.owners[(start + i) % len(self.owners)]
            if owner not in seen:
                seen.add(owner)
                yield self.names[owner]


class _Rings:
    """The rings that were used last. All of them have at most `MOST_NODES` virtual nodes."""

    def __init__(self) -> None:
        self._rings: OrderedDict[tuple[str, ...], Ring] = OrderedDict()
        self._nodes = 0

    def of(self, names: tuple[str, ...]) -> Ring:
        found = self._rings.get(names)
        if found is not None:
            self._rings.move_to_end(names)
            return found
        made = self._rings[names] = _ring(names)
        self._nodes += len(made.points)
        while self._nodes > MOST_NODES and len(self._rings) > 1:
            _, oldest = self._rings.popitem(last=False)
            self._nodes -= len(oldest.points)
        return made

    @property
    def nodes(self) -> int:
        """Virtual nodes of all rings."""
        return self._nodes


rings: Final = _Rings()


def ring(names: tuple[str, ...]) -> Ring:
    """Return the ring of these endpoints. It depends only on their names, so that routers agree."""
    return rings.of(names)


def _ring(names: tuple[str, ...]) -> Ring:
    nodes = sorted((_point(f"{name}#{i}"), name) for name in names for i in range(VIRTUAL_NODES))
    index = {name: number for number, name in enumerate(names)}
    return Ring(
        names, array("Q", (point for point, _ in nodes)), array("I", (index[n] for _, n in nodes))
    )


def pick(
    endpoints: Sequence[Endpoint],
    *,
    key: int | None,
    loads: Mapping[str, int],
    policy: Policy,
    load_factor: float,
    turn: int,
    unusable: Collection[str] = (),
) -> Decision | None:
    """Choose one of the endpoints that are not `unusable` (ejected or tried before); None: all are.

    `loads`: requests in flight by endpoint name. `turn`: rotates choices that score the same. The
    ring has all endpoints, so that an ejected one gets its keys back when it returns.
    """
    usable = {endpoint.name: endpoint for endpoint in endpoints if endpoint.name not in unusable}
    if not usable:
        return None
    if policy == "RoundRobin":
        names = list(usable)
        return Decision(usable[names[turn % len(names)]], "balanced")
    if policy == "LeastLoaded" or key is None:
        return Decision(usable[_least_loaded(list(usable), loads, turn)], "balanced")
    if len(endpoints) == 1:
        return Decision(endpoints[0], "home")  # no load is beyond the bound of one
    order = ring(tuple(endpoint.name for endpoint in endpoints)).walk(key)
    return _within_bound(usable, order, loads, load_factor)


def _within_bound(
    usable: Mapping[str, Endpoint],
    order: Iterator[str],
    loads: Mapping[str, int],
    load_factor: float,
) -> Decision:
    total = sum(loads.get(name, 0) for name in usable) + 1  # the new request counts
    bound = max(LIGHT_LOAD, ceil(load_factor * total / len(usable)))
    outcome: Outcome = "home"
    for name in order:
        if name in usable and loads.get(name, 0) + 1 <= bound:
            return Decision(usable[name], outcome)
        outcome = "spilled"
    msg = "load_factor below 1: no endpoint is within the bound"
    raise ValueError(msg)


def _least_loaded(names: Sequence[str], loads: Mapping[str, int], turn: int) -> str:
    least = min(loads.get(name, 0) for name in names)
    lightest = [name for name in names if loads.get(name, 0) == least]
    return lightest[turn % len(lightest)]


def _point(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _mix(key: int) -> int:
    """Spread regular keys over the ring. The result is the same in all processes and versions."""
    return int.from_bytes(hashlib.blake2b(key.to_bytes(8, "big"), digest_size=8).digest(), "big")
