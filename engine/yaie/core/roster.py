"""Every live request and where its outputs are: waiting, following, running in a slot, or not born.

Owns the requests by id, the running list and the slots; asks the waiting queue and `Placement` by
verbs. It says how outputs move; what a step holds is the `Scheduler`'s, what a result means is
`Commits`'.
"""

from bisect import insort

from yaie.core.deadlines import Deadlines
from yaie.core.drain import DrainRate
from yaie.core.group import Group
from yaie.core.kv_manager import Shared
from yaie.core.messages import Tokens
from yaie.core.outputs import ABORTED, DEADLINE, Ending, Failure, failed, final, unstarted
from yaie.core.placement import Placed, Placement
from yaie.core.policy import WaitingQueue
from yaie.core.sequence import NO_SLOT, Once, Sequence, State


class Roster:
    """Methods that end outputs append what users are told to `events`. `now`: the time, in seconds,
    as of the last call of the loop.
    """

    def __init__(self, placement: Placement, queue: WaitingQueue, max_num_seqs: int) -> None:
        self.placement = placement
        self.queue = queue
        self.running: list[Sequence] = []
        self.drain = DrainRate()
        self.now = 0.0
        self.n_live = 0
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.preemptions = 0
        self._max_num_seqs = max_num_seqs
        self._groups: dict[str, Group] = {}
        self._deadlines = Deadlines()
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        self._released_slots: list[int] = []
        self._next_seq_id = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._groups

    @property
    def n_waiting(self) -> int:
        """Outputs without pages: queued, preempted, following, or not born yet."""
        return self.n_live - len(self.running)

    @property
    def has_slot(self) -> bool:
        return bool(self._free_slots)

    # -- coming -----------------------------------------------------------------------------

    def enter(self, group: Group) -> None:
        """A request arrives; its first output waits."""
        self._groups[group.request.request_id] = group
        self._deadlines.push(group)
        self.n_live += len(group.unborn)
        self._advance(group)

    def admit(self, sequence: Sequence) -> Placed | Shared | None:
        """Room for `sequence`, with a page left for each that runs. None: not now."""
        group = self._groups[sequence.request_id]
        placed = self.placement.admit(sequence, group, reserve=len(self.running))
        while placed is None and not self.running and self.placement.reclaim():
            placed = self.placement.admit(sequence, group, reserve=0)
        return placed

    def start(self, sequence: Sequence, placed: Placed) -> None:
        """A sequence from the queue runs from now on."""
        group = self._groups[sequence.request_id]
        sequence.enter(self._free_slots.pop(), placed.table, placed.ready)
        if group.queued_s is None:
            group.queued_s = max(0.0, self.now - group.arrived_s)
            group.cached_tokens = placed.table.cached_tokens
            self.prompt_tokens += sequence.n_prompt
            self.cached_prompt_tokens += group.cached_tokens
        if not sequence.started:
            sequence.cached_tokens = group.cached_tokens
            sequence.once = Once(max(0.0, self.now - group.arrived_s))
            sequence.started = True
        insort(self.running, sequence, key=lambda other: other.rank)
        if sequence is group.next:
            self._next_started(group, sequence)
        self.queue.started(sequence)

    def follow(self, sequence: Sequence, shared: Shared) -> None:
        """Of two requests with the same uncached prefix the second waits for the first."""
        sequence.state = State.FOLLOWING
        leader = next(other for other in self.running if other.table is shared.leader)
        leader.followers.append((shared.tokens, sequence))

    def wake(self, leader: Sequence, upto: int | None) -> None:
        """Requeue the followers of `leader` that need no more than `upto` tokens (None: all)."""
        followers, leader.followers = leader.followers, []
        for tokens, sequence in followers:
            if sequence.state is not State.FOLLOWING:
                continue
            if upto is None or tokens <= upto:
                self.queue.push(sequence)
            else:
                leader.followers.append((tokens, sequence))

    # -- outputs that share a prompt ----------------------------------------------------------

    def _advance(self, group: Group) -> None:
        """Let the next output of `group` be born, if there is one."""
        if not group.unborn:
            group.next = None
            self.placement.close(group)
            return
        group.next = group.bear(self._next_seq_id)
        self._next_seq_id += 1
        self.queue.push(group.next)

    def _next_started(self, group: Group, sequence: Sequence) -> None:
        if self.placement.has_trunk(group):
            sequence.billed = sequence.n_prompt - sequence.cached_tokens - 1
            self._advance(group)
        elif group.unborn:
            group.next, group.leader = None, sequence
        else:
            group.next = None

    def prompt_computed(self, sequence: Sequence) -> None:
        """If others of its request wait for this, they may share its pages now."""
        group = self._groups[sequence.request_id]
        group.scores = False
        if group.leader is sequence:
            group.leader = None
            if group.unborn:
                self.placement.open(group, sequence)
            self._advance(group)

    # -- going ------------------------------------------------------------------------------

    def preempt(self, sequence: Sequence) -> None:
        """Take pages and slot away; it goes on later, what is in flight is dropped."""
        self.placement.preempt(sequence)
        self._vacate(sequence)
        sequence.epoch += 1
        self.preemptions += 1
        self.queue.push(sequence)

    def end(
        self, sequence: Sequence, ending: Ending, events: list[Tokens], *, poisoned: bool = False
    ) -> None:
        """The one way out of an output that was born: everything is given back."""
        if sequence.state is State.RUNNING:
            if poisoned:
                self.placement.discard(sequence)
            else:
                self.placement.release(sequence)
            self._vacate(sequence)
        elif sequence.state is State.WAITING:
            self.queue.discard(sequence, State.ENDED)
        sequence.state = State.ENDED
        sequence.epoch += 1
        self.placement.forget(sequence)
        events.append(final(sequence, ending))
        self._count_end(1)
        self._part(self._groups[sequence.request_id], sequence, ending, events)

    def _part(self, group: Group, sequence: Sequence, ending: Ending, events: list[Tokens]) -> None:
        """The request goes on without `sequence`."""
        del group.live[sequence.index]
        if sequence is group.next:
            self._advance(group)
        elif sequence is group.leader:
            group.leader = None
            if ending.failure is not None:
                self._end_unborn(group, list(group.unborn), ending.failure, events)
            self._advance(group)
        self._close_if_ended(group)

    def _end_unborn(
        self, group: Group, indices: list[int], failure: Failure | None, events: list[Tokens]
    ) -> None:
        for index in indices:
            group.unborn.remove(index)
        events.extend(unstarted(group.request, failure, indices))
        self._count_end(len(indices))

    def _close_if_ended(self, group: Group) -> None:
        if group.ended:
            self.placement.close(group)
            self._deadlines.discard(group)
            del self._groups[group.request.request_id]

    def _count_end(self, n: int) -> None:
        self.n_live -= n
        self.drain.record(self.now, n)

    def _vacate(self, sequence: Sequence) -> None:
        """Pages are gone already; now the slot goes, and whoever followed."""
        self.queue.left(sequence)
        self.running.remove(sequence)
        self._free_slots.append(sequence.slot)
        self._released_slots.append(sequence.slot)
        sequence.reset()
        self.wake(sequence, None)

    # -- whole requests ---------------------------------------------------------------------

    def abort(self, request_id: str, index: int | None, events: list[Tokens]) -> None:
        """End a request, or one output of it. Nothing happens to what has ended already."""
        group = self._groups.get(request_id)
        if group is None:
            return
        if index is None:
            self.end_group(group, None, events)
        elif index in group.live:
            self.end(group.live[index], ABORTED, events)
        elif index in group.unborn:
            self._end_unborn(group, [index], None, events)
            self._close_if_ended(group)

    def end_group(self, group: Group, failure: Failure | None, events: list[Tokens]) -> None:
        """End all outputs of a request: failed, or else aborted."""
        self._end_unborn(group, list(group.unborn), failure, events)
        ending = ABORTED if failure is None else failed(failure)
        for sequence in list(group.live.values()):
            self.end(sequence, ending, events)

    def end_all(self, failure: Failure, events: list[Tokens], *, only_running: bool) -> None:
        """End every request, or those of which something runs."""
        running = {sequence.request_id for sequence in self.running}
        for group in list(self._groups.values()):
            if not only_running or group.request.request_id in running:
                self.end_group(group, failure, events)

    def expire(self, events: list[Tokens]) -> None:
        """End the requests whose deadline has passed."""
        for group in self._deadlines.expired(self.now):
            self.end_group(group, DEADLINE, events)

    # -- slots ------------------------------------------------------------------------------

    def take_releases(self) -> tuple[int, ...]:
        """Slots that the batch which is being sealed has to give up."""
        released, self._released_slots = self._released_slots, []
        return tuple(released)

    def release_again(self, slots: tuple[int, ...]) -> None:
        """The batch that was to give these up failed; those nobody took since are still to go."""
        self._released_slots.extend(set(slots).intersection(self._free_slots))

    # -- proofs -----------------------------------------------------------------------------

    def check(self) -> None:
        """Prove the invariants of queues, slots and pages; raises AssertionError."""
        groups = self._groups.values()
        live = [sequence for group in groups for sequence in group.live.values()]
        self.placement.check(self.running, live)
        slots = [sequence.slot for sequence in self.running]
        if sorted(slots + self._free_slots) != list(range(self._max_num_seqs)):
            raise AssertionError("a slot is lost or used twice")
        if sorted(self.running, key=lambda sequence: sequence.rank) != self.running:
            raise AssertionError("running sequences are out of rank")
        if self.n_live != len(live) + sum(len(group.unborn) for group in groups):
            raise AssertionError("outputs are lost or counted twice")
        for group in groups:
            _check_group(group)
        following = {id(other) for leader in self.running for _, other in leader.followers}
        for sequence in live:
            _check_sequence(sequence, following)


def _check_group(group: Group) -> None:
    request_id = group.request.request_id
    if group.ended:
        raise AssertionError(f"request {request_id} has ended and stays")
    if group.unborn and (group.next is None) == (group.leader is None):
        raise AssertionError(f"outputs of {request_id} wait for nobody")
    for one in (group.next, group.leader):
        if one is not None and group.live.get(one.index) is not one:
            raise AssertionError(f"request {request_id} counts on an output that has ended")


def _check_sequence(sequence: Sequence, following: set[int]) -> None:
    known = len(sequence.tokens) + sequence.in_flight
    if not sequence.committed <= sequence.scheduled <= known <= sequence.length_limit:
        raise AssertionError(f"sequence {sequence.seq_id} is ahead of itself")
    if sequence.decoding and sequence.samples and known != sequence.scheduled + 1:
        raise AssertionError(f"sequence {sequence.seq_id} decodes what it does not know")
    if (sequence.state is State.RUNNING) != (sequence.slot != NO_SLOT):
        raise AssertionError(f"sequence {sequence.seq_id} runs without a slot")
    if (sequence.state is State.FOLLOWING) and id(sequence) not in following:
        raise AssertionError(f"sequence {sequence.seq_id} waits for nobody")
    if sequence.table is not None and sequence.scheduled > sequence.table.capacity:
        raise AssertionError(f"sequence {sequence.seq_id} has fewer pages than positions")
