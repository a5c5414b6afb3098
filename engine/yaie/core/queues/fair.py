"""The policy that shares the engine between tenants by tokens.

Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, arXiv
2401.00588): each tenant's counter grows by the tokens it was served, an output token counting
`OUTPUT_WEIGHT` times; the next sequence is that of the waiting tenant with the smallest counter. A
tenant that comes back after it had nothing waiting starts no lower than those who waited: idle time
earns no credit. Inside a tenant it is first come, first served.
"""

import heapq
from collections.abc import Iterable

from yaie.core.queues.policy import OrderedQueue, fcfs
from yaie.core.sequence import Sequence

OUTPUT_WEIGHT = 2


class _Tenant:
    """`served`: the virtual counter, in input tokens; it only grows. `active`: has been let in, and
    had something waiting when the last round began.
    """

    __slots__ = ("active", "n_waiting", "name", "queue", "served")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue = OrderedQueue(fcfs)
        self.n_waiting = 0
        self.served = 0
        self.active = False


class FairQueue:
    """Owns the tenants' counters. A tenant is forgotten when nothing of it waits or runs and its
    counter says no more than the floor that it would start from anyway.
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
        """Tenants with a counter."""
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
        """Bring the counters up to date, then let those in who came back."""
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
        """Take out the sequence that is next.

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
        """Charge what was served since the last time. Computing again after a preemption is not
        the tenant's doing and costs it nothing.
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
        """Lift the counters of tenants that had nothing waiting to the least of those that had; if
        there are none, to the least of those that run, or else to that of the last one that ran.
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
        """The active tenant with the smallest counter. Counters only grow, so an entry that says
        too little is put back where it belongs when it surfaces.
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
