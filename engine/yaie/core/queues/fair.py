"""The `fair` policy: shares the engine between tenants by tokens.

Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, arXiv
2401.00588): each tenant's counter grows by the tokens that it was served; an output token counts
`OUTPUT_WEIGHT` times. The next sequence is one of the waiting tenant with the smallest counter.
When a tenant without waiting sequences gets one again, its counter is raised to at least the
smallest counter of the waiting tenants: idle time earns no credit. Within a tenant, the order is
first come, first served.
"""

import heapq
from collections.abc import Iterable

from yaie.core.queues.policy import OrderedQueue, fcfs
from yaie.core.sequence import Sequence

OUTPUT_WEIGHT = 2


class _Tenant:
    """`served`: the virtual counter, in input tokens; it only grows. `active`: takes part in the
    selection, because it had a waiting sequence when the last round of admissions began.
    """

    __slots__ = ("active", "n_waiting", "name", "queue", "served")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue = OrderedQueue(fcfs)
        self.n_waiting = 0
        self.served = 0
        self.active = False


class FairQueue:
    """Owns the tenants' counters. A tenant is removed when it has no waiting or running sequence
    and its counter is at most the floor, at which a new tenant would start.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._heap: list[tuple[int, int, _Tenant]] = []
        self._serial = 0
        self._returning: list[_Tenant] = []
        self._drained: list[_Tenant] = []
        self._floor = 0
        self._last_left = 0
        self._crowd = 64

    @property
    def n_tenants(self) -> int:
        """Number of tenants with a counter."""
        return len(self._tenants)

    def served(self, name: str) -> int:
        """The counter of a tenant, in weighted tokens."""
        tenant = self._tenants.get(name)
        return self._floor if tenant is None else tenant.served

    def push(self, sequence: Sequence) -> None:
        tenant = self._tenant(sequence)
        tenant.queue.push(sequence)
        tenant.n_waiting += 1
        if tenant.n_waiting == 1:
            if tenant.active:
                self._offer(tenant)
            else:
                self._returning.append(tenant)

    def refresh(self, running: Iterable[Sequence]) -> None:
        """Update the counters, then activate the tenants that have waiting sequences again."""
        for tenant in self._drained:
            tenant.active = tenant.active and tenant.n_waiting > 0
        self._drained.clear()
        busy = {self._bill(sequence) for sequence in running}
        if self._returning:
            self._let_in(busy)
        if len(self._tenants) > self._crowd:
            self._forget(busy)

    def peek(self) -> Sequence | None:
        tenant = self._first()
        return None if tenant is None else tenant.queue.peek()

    def pop(self) -> None:
        """Remove the next sequence.

        Raises:
            IndexError: no sequence waits.

        """
        tenant = self._first()
        if tenant is None:
            raise IndexError("nobody waits")
        tenant.queue.pop()
        self._leave(tenant)
        self._floor = max(self._floor, tenant.served)

    def started(self, sequence: Sequence) -> None:
        self._bill(sequence)

    def left(self, sequence: Sequence) -> None:
        self._last_left = self._bill(sequence).served

    def discard(self, sequence: Sequence) -> None:
        tenant = self._tenant(sequence)
        tenant.queue.discard(sequence)
        self._leave(tenant)

    # -- inside -----------------------------------------------------------------------------

    def _tenant(self, sequence: Sequence) -> _Tenant:
        name = sequence.request.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name)
            tenant.served = self._floor
        return tenant

    def _bill(self, sequence: Sequence) -> _Tenant:
        """Charge the tenant for the tokens served since the last call. Tokens that are computed
        again after a preemption are not charged.
        """
        tenant = self._tenant(sequence)
        prompt = sequence.n_prompt - sequence.cached_tokens
        due = prompt + OUTPUT_WEIGHT * sequence.n_generated
        tenant.served += due - sequence.billed
        sequence.billed = due
        return tenant

    def _leave(self, tenant: _Tenant) -> None:
        tenant.n_waiting -= 1
        if not tenant.n_waiting:
            self._drained.append(tenant)

    def _let_in(self, busy: set[_Tenant]) -> None:
        """Activate the returning tenants and raise their counters to the floor. The floor rises to
        the smallest counter of the waiting tenants; if there are none, of the tenants with running
        sequences; or else to the counter of the tenant whose sequence ran last.
        """
        first = self._first()
        if first is not None:
            least = first.served
        else:
            others = busy.difference(self._returning)
            least = min((tenant.served for tenant in others), default=self._last_left)
        self._floor = max(self._floor, least)
        for tenant in self._returning:
            if tenant.n_waiting and not tenant.active:
                tenant.active = True
                tenant.served = max(tenant.served, self._floor)
                self._offer(tenant)
        self._returning.clear()

    def _offer(self, tenant: _Tenant) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (tenant.served, self._serial, tenant))

    def _first(self) -> _Tenant | None:
        """The active tenant with the smallest counter. Counters only grow, so an entry with an
        outdated counter is pushed again when it reaches the top of the heap.
        """
        while self._heap:
            served, _, tenant = self._heap[0]
            waits = tenant.active and tenant.n_waiting > 0
            if waits and served == tenant.served:
                return tenant
            heapq.heappop(self._heap)
            if waits:
                self._offer(tenant)
        return None

    def _forget(self, busy: set[_Tenant]) -> None:
        for name, tenant in list(self._tenants.items()):
            if not tenant.n_waiting and tenant not in busy and tenant.served <= self._floor:
                del self._tenants[name]
        self._crowd = 2 * len(self._tenants) + 64
