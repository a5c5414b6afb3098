"""Admits the requests of tenants: each within its limits, and in turns where engines are full.

limits (429) ──▶ seat, in turns (429, 503) ──▶ engine ──▶ settled by what the engine counted
"""

import logging
from collections.abc import Callable, Iterable
from math import ceil
from types import TracebackType
from typing import Final, Self

import msgspec

from yaie_api.errors import YaieError
from yaie_api.logs import fields
from yaie_router.discovery.objects import Model
from yaie_router.tenants.estimate import TokenEstimate
from yaie_router.tenants.limits import read_limits
from yaie_router.tenants.mount import Entries
from yaie_router.tenants.quotas import Lease, Quotas
from yaie_router.tenants.seats import Place, Seats

log = logging.getLogger(__name__)


class Ask(msgspec.Struct, frozen=True):
    """What is known of a request's size: bytes, and the most tokens that its answer may have."""

    tenant: str
    model: Model
    size: int
    most: int | None


class Visit:
    """One admitted request. `seats`: None where nobody takes turns."""

    def __init__(
        self, ask: Ask, lease: Lease, place: Place, seats: Seats | None, estimate: TokenEstimate
    ) -> None:
        self._ask = ask
        self._lease = lease
        self.place: Final = place
        self._seats = seats
        self._estimate = estimate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.close()

    @property
    def headers(self) -> dict[str, str]:
        """What its answer says about the tenant's limits."""
        return self._lease.headers

    def seated(self) -> "_Seated":
        """Hold a seat at one of the model's engines while the context is open; wait for it first.
        What raises an error has computed nothing.

        Raises:
            DeadlineExceededError: its client's time limit has passed.
            OverloadedError: too many wait.
            UnavailableError: no seat was free in time.

        """
        return _Seated(self, self._seats)

    def counted(self, prompt: int, answer: int) -> None:
        """Take in what the engine has counted."""
        ask = self._ask
        self._estimate.learn(ask.model.name, ask.tenant, ask.size, prompt, answer)
        self._settle(prompt + answer)

    def left_after(self, answer: int) -> int:
        """Take in that its client left, or its engine ended, after about so many tokens of the
        answer. Returns about how many the prompt had.
        """
        prompt = self._estimate.prompt(self._ask.model.name, self._ask.size)
        self._settle(prompt + answer)
        return prompt

    def refused(self) -> None:
        """Give back what was charged: no engine has computed anything."""
        self._settle(0)

    def _settle(self, tokens: int) -> None:
        self._lease.settle(tokens)
        self.place.settle(tokens)


class _Seated:
    """The context of a seat. `contextlib`'s would be a generator for each request."""

    def __init__(self, visit: Visit, seats: Seats | None) -> None:
        self._visit = visit
        self._seats = seats

    async def __aenter__(self) -> None:
        if self._seats is not None:
            try:
                await self._seats.take(self._visit.place)
            except YaieError:
                self._visit.refused()
                raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, YaieError):
            self._visit.refused()
        if self._seats is not None:
            self._seats.leave(self._visit.place)


class Tenants:
    """All tenants. `takes_turns`: whether they are told apart where engines are full; if not, a
    request waits in its engine's own queue.

    `routers`: how many share the engines and the limits, until `changed` says it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        takes_turns: bool,
        routers: int,
        most_queued: int,
        queue_timeout_s: float,
    ) -> None:
        self._clock = clock
        self._takes_turns = takes_turns
        self._routers = routers
        self._most_queued = most_queued
        self._queue_timeout_s = queue_timeout_s
        self._quotas = Quotas(clock)
        self._quotas.share(routers)
        self._estimate = TokenEstimate()
        self._seats: dict[str, Seats] = {}

    def take_limits(self, entries: Entries) -> None:
        """Take a new version of the limits."""
        self._quotas.book, wrong = read_limits(entries, self._quotas.book)
        for one in wrong:
            told = fields(tenant=one.tenant, error=one.problem)
            log.error("limits that cannot be read; those before count", extra=told)
        log.info("limits read", extra=fields(entries=len(entries)))

    def changed(self, models: Iterable[Model], routers: int) -> None:
        """Take in which models there are, how many engines each has, and how many routers."""
        self._routers = routers
        self._quotas.share(routers)
        known = {model.name: model for model in models}
        self._estimate.retain(set(known))
        for name, seats in list(self._seats.items()):
            if name in known:
                seats.resize(self._count(known[name]))
            elif seats.is_idle:
                del self._seats[name]

    def retain(self, tenants: frozenset[str]) -> None:
        """Forget what is known of other tenants."""
        self._quotas.retain(tenants)
        self._estimate.retain_tenants(tenants)

    def waiting(self, model: str) -> int:
        """How many requests wait for a seat."""
        return self._seats[model].waiting if model in self._seats else 0

    def admitted(self, ask: Ask) -> Visit:
        """Charge a request to its tenant's limits, and hold its place there until the visit, a
        context manager, closes.

        Raises:
            RateLimitError: one of the limits is reached.

        """
        tokens = self._estimate.of(ask.model.name, ask.tenant, ask.size, ask.most)
        lease = self._quotas.admit(ask.tenant, tokens)
        place = Place(ask.tenant, self._quotas.book.of(ask.tenant).weight, tokens)
        seats = self._seats_of(ask.model) if self._takes_turns else None
        return Visit(ask, lease, place, seats, self._estimate)

    def _seats_of(self, model: Model) -> Seats:
        seats = self._seats.get(model.name)
        if seats is None:
            seats = Seats(self._clock, most=self._most_queued, timeout_s=self._queue_timeout_s)
            seats.resize(self._count(model))
            self._seats[model.name] = seats
        return seats

    def _count(self, model: Model) -> int:
        """Seats of this router: one at least, so that a model without engines says so at once."""
        return max(1, ceil(len(model.endpoints) * model.max_num_seqs / self._routers))
