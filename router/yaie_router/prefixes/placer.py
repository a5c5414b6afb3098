"""Places requests by what engines publish: the keys of a request, its choice, and its accounts."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from yaie_api import prefix
from yaie_api.prefix import Outcome, PrefixKeys, PrefixUpdate
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.prefixes.fleet import Choice, Fleet
from yaie_router.prefixes.queues import Sent


@dataclass(eq=False, slots=True)
class Ticket:
    """A placed request, until its answer has ended. As a context manager, it ends then. `engines`:
    all that the model had, also those that were not to be chosen.
    """

    choice: Choice
    endpoint: Endpoint
    engines: Sequence[Endpoint]
    _fleet: Fleet
    _sent: Sent

    def told(self) -> dict[str, str]:
        """All that the choice was made from (`Choice.told`)."""
        return self.choice.told([engine.name for engine in self.engines])

    def computed(self) -> None:
        """Note that its first token has come."""
        self._fleet.queues.computed(self._sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fleet.queues.ended(self._sent)


class Placer:
    """`secret`: of the prefix keys; b"": engines publish none. `clock`: in seconds."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secret
        self._clock = clock
        self._fleets: dict[str, Fleet] = {}

    def keys(
        self, body: Mapping[str, Any], model: Model, tenant: str, *, beginning_of: int = 0
    ) -> PrefixKeys:
        """The keys of a request, as its engines compute them. `beginning_of`: the bytes of a
        request of which `body` is the beginning only.
        """
        secret = prefix.tenant_key(self._secret, tenant)
        found = prefix.keys(body, secret, model=model.served)
        return found.of_beginning(beginning_of) if beginning_of else found

    def place(self, model: Model, keys: PrefixKeys, unusable: Collection[str]) -> Ticket | None:
        """Choose one of the model's endpoints that are not `unusable`. None: there is none, or not
        all of them publish their keys.
        """
        fleet = self._fleets.get(model.name)
        if fleet is None:
            return None
        usable = {one.name: one for one in model.endpoints if one.name not in unusable}
        if not usable or not fleet.speaks(usable):
            return None
        choice = fleet.choose(keys, usable)
        return Ticket(choice, usable[choice.engine], model.endpoints, fleet, fleet.send(choice))

    def take(self, model: str, engine: str, update: PrefixUpdate) -> Outcome:
        """Take a line of an engine's stream.

        Raises:
            TooManyKeysError: it has more keys than a router will keep.

        """
        return self._fleet(model).take(engine, update)

    def lost(self, model: str, engine: str) -> None:
        """Note that an engine's stream has ended."""
        self._fleet(model).holdings.lost(engine)

    def silent(self, model: str, engine: str) -> None:
        """Note that an engine publishes no keys."""
        self._fleet(model).silent(engine)

    def learn(self, model: str, keys: PrefixKeys, tokens: int) -> None:
        """Take in how many tokens an engine counted in a prompt."""
        if (fleet := self._fleets.get(model)) is not None:
            fleet.learn(keys, tokens)

    def num_keys(self, model: str) -> int:
        """Keys that the model's engines have, each counted once."""
        return fleet.holdings.num_keys if (fleet := self._fleets.get(model)) else 0

    def retain(self, models: Iterable[Model]) -> None:
        """Forget other models, and engines that are not theirs any more."""
        known = {model.name: model for model in models}
        for name, fleet in list(self._fleets.items()):
            if name not in known:
                del self._fleets[name]
                continue
            model = known[name]
            fleet.retain(one.name for one in (*model.endpoints, *model.resting))

    def _fleet(self, model: str) -> Fleet:
        fleet = self._fleets.get(model)
        if fleet is None:
            fleet = self._fleets[model] = Fleet(self._clock)
        return fleet
