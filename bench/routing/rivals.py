"""The policies that are compared. Each chooses engines in the simulator as a router does."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from routing.requests import Request
from yaie_api.prefix import PrefixUpdate
from yaie_router.balancing import affinity
from yaie_router.discovery.objects import Endpoint, Policy
from yaie_router.prefixes.fleet import Choice, Fleet
from yaie_router.prefixes.queues import Sent


class Rival(Protocol):
    """What one router replica decides."""

    def choose(self, request: Request) -> str: ...

    def first(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...

    def take(self, engine: str, update: PrefixUpdate) -> None: ...


class Classic:
    """A policy of `balancing.affinity`, with its own counts of what is in flight."""

    def __init__(self, policy: Policy, names: Sequence[str], load_factor: float = 1.25) -> None:
        self._policy = policy
        self._endpoints = tuple(Endpoint(name, name, 80) for name in names)
        self._loads: Counter[str] = Counter()
        self._turns = itertools.count()
        self._load_factor = load_factor

    def choose(self, request: Request) -> str:
        found = affinity.pick(
            self._endpoints,
            key=request.keys.keys[request.keys.home],
            loads=self._loads,
            policy=self._policy,
            load_factor=self._load_factor,
            turn=next(self._turns),
        )
        assert found is not None
        self._loads[found.endpoint.name] += 1
        return found.endpoint.name

    def first(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None:
        self._loads[request.engine] -= 1

    def take(self, engine: str, update: PrefixUpdate) -> None: ...


class Placing:
    """The policy that routers use."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self.fleet = Fleet(clock)
        self._names = tuple(names)
        self._sent: dict[Request, Sent] = {}
        self.reasons: Counter[str] = Counter()

    def ask(self, request: Request) -> Choice:
        """What it would choose."""
        return self.fleet.choose(request.keys, self._names)

    def choose(self, request: Request) -> str:
        choice = self.ask(request)
        self._sent[request] = self.fleet.send(choice)
        self.reasons[choice.placement.reason] += 1
        return choice.placement.option.name

    def first(self, request: Request) -> None:
        self.fleet.queues.computed(self._sent[request])

    def ended(self, request: Request) -> None:
        self.fleet.queues.ended(self._sent.pop(request))
        self.fleet.learn(request.keys, request.tokens)

    def take(self, engine: str, update: PrefixUpdate) -> None:
        self.fleet.take(engine, update)


Make = Callable[[Sequence[str], Callable[[], float]], Rival]
RIVALS: Mapping[str, Make] = {
    "placed": Placing,
    "chwbl": lambda names, _: Classic("PrefixAffinity", names),
    "least load": lambda names, _: Classic("LeastLoaded", names),
    "round robin": lambda names, _: Classic("RoundRobin", names),
}
