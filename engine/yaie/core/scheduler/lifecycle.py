"""Keeps every live request and moves its outputs between states: not started, waiting, following,
running in a slot, suspended, ended.

Owns the requests by id and the list of running sequences; uses the waiting queue, `SlotAllocator`
and `KVCacheManager`. `plan` decides what a step holds, and `StepCommitter` applies its result.
"""

from bisect import insort

from yaie.core.group import SequenceGroup
from yaie.core.kv_cache.radix_cache import PrefixPending
from yaie.core.messages import Tokens
from yaie.core.outputs import ABORTED, DEADLINE, Failure, FinishInfo, failed, final, unstarted
from yaie.core.queues.completion_rate import CompletionRate
from yaie.core.queues.deadlines import Deadlines
from yaie.core.queues.policy import WaitingQueue
from yaie.core.queues.prompt_rate import PromptRate
from yaie.core.scheduler.invariants import check_group, check_sequence
from yaie.core.scheduler.kv_cache_manager import Allocation, KVCacheManager
from yaie.core.scheduler.slots import SlotAllocator
from yaie.core.sequence import FirstOutputInfo, Sequence, SequenceStatus


class RequestLifecycle:
    """Methods that end outputs append the messages for users to `events`. `now`: the time of the
    loop's last call, in seconds. `n_live`: outputs that have not ended. `n_grammars`: requests with
    a grammar.
    """

    def __init__(self, kv_cache: KVCacheManager, queue: WaitingQueue, max_num_seqs: int) -> None:
        self.kv_cache = kv_cache
        self.queue = queue
        self.slots = SlotAllocator(max_num_seqs)
        self.running: list[Sequence] = []
        self.completions = CompletionRate()
        self.prompts = PromptRate()
        self.now = 0.0
        self.n_live = 0
        self.n_grammars = 0
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.preemptions = 0
        self._groups: dict[str, SequenceGroup] = {}
        self._unstarted_tokens = 0
        self._deadlines = Deadlines()
        self._next_seq_id = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._groups

    @property
    def n_waiting(self) -> int:
        """Outputs without pages: queued, preempted, following, or not started yet."""
        return self.n_live - len(self.running)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of requests that have not started, and what is left of prompts that run."""
        running = (one.n_prompt - one.scheduled for one in self.running if not one.decoding)
        return self._unstarted_tokens + sum(max(0, left) for left in running)

    # -- arrival ----------------------------------------------------------------------------

    def enter(self, group: SequenceGroup) -> None:
        """Add a request and put its first output into the queue."""
        if not self.n_live:
            self.completions.resume(group.arrived_s)
        self._groups[group.request.request_id] = group
        self._deadlines.push(group)
        self.n_live += len(group.unstarted)
        self._unstarted_tokens += len(group.request.prompt_token_ids)
        self.n_grammars += group.has_grammar
        self._advance(group)

    def admit(self, sequence: Sequence) -> Allocation | PrefixPending | None:
        """Allocate pages for `sequence`, leaving one page for each running sequence. If nothing
        runs, release shared prompts for it. None: there are not enough pages now.
        """
        group = self._groups[sequence.request_id]
        allocation = self.kv_cache.allocate(sequence, group, reserve=len(self.running))
        while allocation is None and not self.running and self.kv_cache.reclaim():
            allocation = self.kv_cache.allocate(sequence, group, reserve=0)
        return allocation

    def start(self, sequence: Sequence, allocation: Allocation) -> None:
        """Start a sequence of the queue in a slot, with the pages of `allocation`."""
        group = self._groups[sequence.request_id]
        sequence.enter(self.slots.take(), allocation.table, allocation.ready)
        if not group.started:
            group.started = True
            self._unstarted_tokens -= sequence.n_prompt
            group.cached_tokens = min(allocation.table.cached_tokens, sequence.n_prompt)
            self.prompt_tokens += sequence.n_prompt
            self.cached_prompt_tokens += group.cached_tokens
            self.prompts.admitted(sequence.n_prompt, group.cached_tokens)
        if not sequence.started:
            sequence.cached_tokens = group.cached_tokens
            sequence.first_output = FirstOutputInfo(max(0.0, self.now - group.arrived_s))
            sequence.started = True
        insort(self.running, sequence, key=lambda other: other.rank)
        if sequence is group.next:
            self._next_started(group, sequence)
        self.queue.started(sequence)

    def follow(self, sequence: Sequence, shared: PrefixPending) -> None:
        """Let `sequence` wait until a running sequence has computed the prefix of both."""
        sequence.state = SequenceStatus.FOLLOWING
        primary = next(other for other in self.running if other.table is shared.primary)
        primary.followers.append((shared.tokens, sequence))

    def wake(self, primary: Sequence, upto: int | None) -> None:
        """Requeue the followers of `primary` that need no more than `upto` tokens (None: all)."""
        followers, primary.followers = primary.followers, []
        for tokens, sequence in followers:
            if sequence.state is not SequenceStatus.FOLLOWING:
                continue
            if upto is None or tokens <= upto:
                self.queue.push(sequence)
            else:
                primary.followers.append((tokens, sequence))

    # -- outputs that share a prompt ----------------------------------------------------------

    def _advance(self, group: SequenceGroup) -> None:
        """Create the next output of `group` and queue it; if there is none, release the shared
        prompt.
        """
        if not group.unstarted:
            group.next = None
            self.kv_cache.close(group)
            return
        group.next = group.spawn(self._next_seq_id)
        self._next_seq_id += 1
        self.queue.push(group.next)

    def _next_started(self, group: SequenceGroup, sequence: Sequence) -> None:
        if self.kv_cache.has_shared_prompt(group):
            sequence.billed = sequence.n_prompt - sequence.cached_tokens - 1
            self._advance(group)
        elif group.unstarted:
            group.next, group.primary = None, sequence
        else:
            group.next = None

    def prompt_computed(self, sequence: Sequence) -> None:
        """The prompt of `sequence` is computed: if other outputs of its request wait for it, let
        them share its pages.
        """
        group = self._groups[sequence.request_id]
        group.scores = False
        if group.primary is sequence:
            group.primary = None
            if group.unstarted:
                self.kv_cache.open(group, sequence)
            self._advance(group)

    # -- preemption, end ---------------------------------------------------------------------

    def preempt(self, sequence: Sequence) -> None:
        """Take pages and slot from `sequence` and queue it again. Its results in flight are
        dropped.
        """
        self.suspend(sequence)
        self.preemptions += 1
        self.queue.push(sequence)

    def suspend(self, sequence: Sequence) -> None:
        """As `preempt`, but the fault isolator decides when the sequence continues."""
        self.kv_cache.preempt(sequence)
        self._vacate(sequence)
        sequence.epoch += 1
        sequence.state = SequenceStatus.SUSPENDED

    def end(
        self,
        sequence: Sequence,
        finish: FinishInfo,
        events: list[Tokens],
        *,
        poisoned: bool = False,
    ) -> None:
        """End a live output and release all it holds. All live outputs end here. `poisoned`: do not
        cache its pages.
        """
        if sequence.state is SequenceStatus.RUNNING:
            if poisoned:
                self.kv_cache.discard(sequence)
            else:
                self.kv_cache.release(sequence)
            self._vacate(sequence)
        elif sequence.state is SequenceStatus.WAITING:
            self.queue.discard(sequence)
        sequence.state = SequenceStatus.ENDED
        sequence.epoch += 1
        self.kv_cache.forget(sequence)
        events.append(final(sequence, finish))
        self._count_end(1)
        self._part(self._groups[sequence.request_id], sequence, finish, events)

    def _part(
        self, group: SequenceGroup, sequence: Sequence, finish: FinishInfo, events: list[Tokens]
    ) -> None:
        """Remove `sequence`, which has ended, from its request; if the next output waited for it,
        go on. If a primary has failed, the outputs that have not started fail with it.
        """
        del group.live[sequence.index]
        if sequence is group.next:
            self._advance(group)
        elif sequence is group.primary:
            group.primary = None
            if finish.failure is not None:
                self._end_unstarted(group, list(group.unstarted), finish.failure, events)
            self._advance(group)
        self._close_if_ended(group)

    def _end_unstarted(
        self,
        group: SequenceGroup,
        indices: list[int],
        failure: Failure | None,
        events: list[Tokens],
    ) -> None:
        for index in indices:
            group.unstarted.remove(index)
        events.extend(unstarted(group.request, failure, indices))
        self._count_end(len(indices))

    def _close_if_ended(self, group: SequenceGroup) -> None:
        if group.ended:
            self.kv_cache.close(group)
            self._deadlines.discard(group)
            self.n_grammars -= group.has_grammar
            if not group.started:
                self._unstarted_tokens -= len(group.request.prompt_token_ids)
            del self._groups[group.request.request_id]

    def _count_end(self, n: int) -> None:
        self.n_live -= n
        self.completions.record(self.now, n)

    def _vacate(self, sequence: Sequence) -> None:
        """Release the slot of a sequence whose pages are released, and wake its followers."""
        self.queue.left(sequence)
        self.running.remove(sequence)
        self.slots.give_back(sequence.slot)
        sequence.reset()
        self.wake(sequence, None)

    # -- whole requests ---------------------------------------------------------------------

    def abort(self, request_id: str, index: int | None, events: list[Tokens]) -> None:
        """End a request, or one output of it. Does nothing if that has ended already."""
        group = self._groups.get(request_id)
        if group is None:
            return
        if index is None:
            self.end_group(group, None, events)
        elif index in group.live:
            self.end(group.live[index], ABORTED, events)
        elif index in group.unstarted:
            self._end_unstarted(group, [index], None, events)
            self._close_if_ended(group)

    def end_group(
        self, group: SequenceGroup, failure: Failure | None, events: list[Tokens]
    ) -> None:
        """End all outputs of a request. `failure` None: they are aborted."""
        self._end_unstarted(group, list(group.unstarted), failure, events)
        finish = ABORTED if failure is None else failed(failure)
        for sequence in list(group.live.values()):
            self.end(sequence, finish, events)

    def end_all(self, failure: Failure, events: list[Tokens], *, only_running: bool) -> None:
        """End every request, or every request with a running output."""
        running = {sequence.request_id for sequence in self.running}
        for group in list(self._groups.values()):
            if not only_running or group.request.request_id in running:
                self.end_group(group, failure, events)

    def expire(self, events: list[Tokens]) -> None:
        """End the requests whose deadline has passed."""
        for group in self._deadlines.expired(self.now):
            self.end_group(group, DEADLINE, events)

    # -- checks -----------------------------------------------------------------------------

    def check(self) -> list[Sequence]:
        """Prove the invariants of queues, slots and pages; raises AssertionError. Returns the
        suspended sequences.
        """
        groups = self._groups.values()
        live = [sequence for group in groups for sequence in group.live.values()]
        self.kv_cache.check(self.running, live)
        self.slots.check([sequence.slot for sequence in self.running])
        if sorted(self.running, key=lambda sequence: sequence.rank) != self.running:
            raise AssertionError("running sequences are out of rank")
        if self.n_live != len(live) + sum(len(group.unstarted) for group in groups):
            raise AssertionError("outputs are lost or counted twice")
        unstarted = (len(g.request.prompt_token_ids) for g in groups if not g.started)
        if self._unstarted_tokens != sum(unstarted):
            raise AssertionError("tokens of waiting prompts are lost or counted twice")
        for group in groups:
            check_group(group)
        following = {id(other) for primary in self.running for _, other in primary.followers}
        for sequence in live:
            check_sequence(sequence, following)
        return [sequence for sequence in live if sequence.state is SequenceStatus.SUSPENDED]
