"""Who runs in the next step. Owns every sequence and both queues; knows no tensors and no clock.

`EngineLoop` calls add and abort, then schedule, then commit (or fail_step) once per step, in order.
A step is decodes first, then prefill chunks within the token budget, mixed in one batch. Several
steps may be scheduled before the first is committed; see `Sequence` for what that needs.
"""

import random
from bisect import insort

from yaie.core.admission import Limits, rejection, validate
from yaie.core.batch import Batch, StepResult
from yaie.core.drain import DrainRate
from yaie.core.kv_manager import KVManager, Shared, Table
from yaie.core.kv_spec import KVSpec
from yaie.core.messages import Accepted, FinishReason, Generate, Rejected, Stats, Tokens
from yaie.core.policy import Policy, WaitingQueue, fcfs
from yaie.core.radix import pack
from yaie.core.sequence import NO_SLOT, Sequence, State
from yaie.core.step import Step
from yaie_api.errors import InvalidRequestError, OverloadedError, YaieError

NOT_FINITE = "The model produced values that are not finite for this request."


class Scheduler:
    """Sequences of one engine.

    Args:
        spec: layer groups and page size.
        num_pages: pages in each layer group's pool, scratch page included.
        max_num_seqs: slots, that is sequences that run at once.
        max_model_len: longest sequence in tokens; the size of the KV cache may lower it.
        vocab_size: token ids are 0 .. vocab_size - 1.
        max_num_queued_reqs: waiting requests; one more is refused with 429.
        eos_token_ids: token ids that end a sequence unless it ignores them.
        enable_prefix_caching: share and keep computed pages.
        seed: seed of the seeds of requests that bring none; None: random.
        policy: order of the waiting queue.

    """

    def __init__(
        self,
        spec: KVSpec,
        num_pages: int,
        *,
        max_num_seqs: int,
        max_model_len: int,
        vocab_size: int,
        max_num_queued_reqs: int = 2048,
        eos_token_ids: tuple[int, ...] = (),
        enable_prefix_caching: bool = True,
        seed: int | None = None,
        policy: Policy = fcfs,
    ) -> None:
        self._kv = KVManager(spec, num_pages, enable_prefix_caching=enable_prefix_caching)
        longest = min(max_model_len, self._kv.capacity_tokens)
        self._limits = Limits(max_num_seqs, max_num_queued_reqs, longest, vocab_size)
        self._eos = frozenset(eos_token_ids)
        self._random = random.Random(seed)  # noqa: S311 - sampling seeds, not secrets
        self._queue = WaitingQueue(policy)
        self._by_id: dict[str, Sequence] = {}
        self._running: list[Sequence] = []
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        self._released_slots: list[int] = []
        self._steps: dict[int, tuple[Batch, list[Sequence]]] = {}
        self._next_seq_id = 0
        self._next_step_id = 0
        self._drain = DrainRate()
        self._now = 0.0
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0
        self._generated_tokens = 0
        self._preemptions = 0

    # -- what the loop asks -----------------------------------------------------------------

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Requests without pages: queued, preempted, or waiting for a shared prefix."""
        return len(self._by_id) - len(self._running)

    @property
    def n_decoding(self) -> int:
        """Running sequences whose prompt is computed or in flight."""
        return sum(sequence.decoding for sequence in self._running)

    @property
    def has_prefill(self) -> bool:
        """Whether a step could hold prefill; without, its token budget decides nothing."""
        return len(self._by_id) > len(self._running) or self.n_decoding < len(self._running)

    @property
    def prefill_position(self) -> int:
        """Where the next prefill chunk starts, as far as running sequences tell."""
        for sequence in self._running:
            if not sequence.decoding:
                return sequence.scheduled
        return 0

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens that can be served."""
        return self._limits.max_model_len

    @property
    def is_idle(self) -> bool:
        """Nothing to run, now or later, and nothing to commit."""
        return not self._by_id and not self._steps

    def add(self, request: Generate) -> Accepted | Rejected:
        """Queue a request, or say why not. Ids of live requests are refused."""
        try:
            validate(request, self._limits)
            self._check_queue(request)
        except YaieError as error:
            return rejection(request.request_id, error)
        sampling = request.sampling
        seed = self._random.getrandbits(63) if sampling.seed is None else sampling.seed
        sequence = Sequence(
            request,
            seq_id=self._next_seq_id,
            key=pack(request.prompt_token_ids),
            seed=seed,
            eos_token_ids=self._eos,
            max_model_len=self._limits.max_model_len,
        )
        self._next_seq_id += 1
        self._by_id[request.request_id] = sequence
        self._queue.push(sequence)
        return Accepted(request.request_id)

    def abort(self, request_id: str) -> Tokens | None:
        """End a request now. None: it had ended already, or never was."""
        sequence = self._by_id.get(request_id)
        return None if sequence is None else self._end(sequence, "abort")

    def schedule(self, now: float, budget: int) -> Batch | None:
        """The next step of about `budget` tokens (decodes all run); None: nothing can run now."""
        self._drain.record(now, 0)
        self._now = now
        step = Step(budget)
        self._schedule_decodes(step)
        self._schedule_chunks(step)
        self._admit(step)
        return self._seal(step) if step.rows else None

    def commit(self, result: StepResult, now: float) -> list[Tokens]:
        """Take the outcome of the oldest step in flight; returns what users get."""
        self._now = now
        batch, sequences = self._steps.pop(result.step_id)
        events: list[Tokens] = []
        for sequence, row, token, finite in zip(
            sequences, batch.rows, result.tokens, result.finite, strict=True
        ):
            if sequence.epoch != row.epoch:
                continue
            # An id outside the vocabulary is as broken as NaN, and no key of the tree.
            if not finite or (row.sample and not 0 <= token < self._limits.vocab_size):
                events.append(self._end(sequence, "error", error=NOT_FINITE, poisoned=True))
                continue
            sequence.committed += row.n_tokens
            if row.tokens:
                self._commit_chunk(sequence)
            if row.sample:
                events.append(self._commit_token(sequence, token))
        return events

    def fail_step(self, step_id: int, reason: str) -> list[Tokens]:
        """A step raised: its sequences end with error `reason`, the others go on."""
        batch, sequences = self._steps.pop(step_id)
        self._released_slots.extend(set(batch.releases).intersection(self._free_slots))
        return [
            self._end(sequence, "error", error=reason)
            for sequence, row in zip(sequences, batch.rows, strict=True)
            if sequence.epoch == row.epoch
        ]

    def fail_all(self, reason: str) -> list[Tokens]:
        """The engine stops: every live request ends with error `reason`."""
        live = list(self._by_id.values())
        return [self._end(sequence, "error", error=reason) for sequence in live]

    def fail_running(self, reason: str) -> list[Tokens]:
        """The engine breaks down: requests that have pages end with error `reason`."""
        running = list(self._running)
        return [self._end(sequence, "error", error=reason) for sequence in running]

    def stats(self) -> Stats:
        """A snapshot. Pages exclude scratch; step time and budget are the loop's to fill in."""
        return Stats(
            running=self.n_running,
            waiting=self.n_waiting,
            pages_total=self._kv.num_pages - 1,
            pages_free=self._kv.free_pages,
            pages_cached=self._kv.cached_pages,
            prompt_tokens=self._prompt_tokens,
            cached_prompt_tokens=self._cached_prompt_tokens,
            generated_tokens=self._generated_tokens,
            preemptions=self._preemptions,
            steps=self._next_step_id,
            step_seconds=0.0,
            step_budget_tokens=0,
        )

    # -- building a step --------------------------------------------------------------------

    def _schedule_decodes(self, step: Step) -> None:
        index = 0
        while index < len(self._running):  # preemption shortens the list from its end
            sequence = self._running[index]
            index += 1
            if not sequence.decoding or not sequence.may_grow:
                continue
            if sequence.scheduled < sequence.owned_table.capacity or self._grow(sequence, step):
                step.decode(sequence)

    def _grow(self, sequence: Sequence, step: Step) -> bool:
        """Get a page, preempting from the end of the ranks; False: it preempted itself."""
        while (pages := self._kv.extend(sequence.owned_table)) is None:
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        step.append(sequence, pages)
        return True

    def _schedule_chunks(self, step: Step) -> None:
        for sequence in self._running:
            if step.budget <= 0:
                return
            if not sequence.decoding:
                step.prefill(sequence)

    def _admit(self, step: Step) -> None:
        """Start waiting sequences in policy order until slots, budget or pages run out."""
        while step.budget > 0 and self._free_slots and (sequence := self._queue.peek()):
            salt, reserve = sequence.request.salt, len(self._running)
            outcome = self._kv.admit(salt, sequence.key, reserve=reserve)
            if outcome is None:
                return
            self._queue.pop()
            if isinstance(outcome, Shared):
                self._follow(sequence, outcome)
            else:
                self._start(sequence, outcome, step)

    def _start(self, sequence: Sequence, table: Table, step: Step) -> None:
        sequence.table = table
        sequence.state = State.RUNNING
        sequence.slot = self._free_slots.pop()
        sequence.committed = sequence.scheduled = table.cached_tokens
        if sequence.cached_tokens is None:
            sequence.cached_tokens = table.cached_tokens
            self._prompt_tokens += sequence.n_prompt
            self._cached_prompt_tokens += table.cached_tokens
        insort(self._running, sequence, key=lambda other: other.rank)
        step.start(sequence)
        step.prefill(sequence)

    def _follow(self, sequence: Sequence, shared: Shared) -> None:
        """Of two requests with the same uncached prefix the second waits for the first."""
        sequence.state = State.FOLLOWING
        leader = next(other for other in self._running if other.table is shared.leader)
        leader.followers.append((shared.tokens, sequence))

    def _wake(self, leader: Sequence, upto: int | None) -> None:
        """Requeue the followers of `leader` that need no more than `upto` tokens (None: all)."""
        followers, leader.followers = leader.followers, []
        for tokens, sequence in followers:
            if sequence.state is not State.FOLLOWING:
                continue
            if upto is None or tokens <= upto:
                self._queue.push(sequence)
            else:
                leader.followers.append((tokens, sequence))

    def _seal(self, step: Step) -> Batch:
        batch = step.batch(self._next_step_id, tuple(self._released_slots))
        self._released_slots = []
        self._steps[batch.step_id] = (batch, step.sequences)
        self._next_step_id += 1
        return batch

    # -- after a step -----------------------------------------------------------------------

    def _commit_chunk(self, sequence: Sequence) -> None:
        self._kv.commit(sequence.owned_table, sequence.committed)
        if sequence.followers:
            self._wake(sequence, sequence.committed)

    def _commit_token(self, sequence: Sequence, token: int) -> Tokens:
        sequence.in_flight -= 1
        sequence.tokens.append(token)
        self._generated_tokens += 1
        length = len(sequence.tokens)
        if token in sequence.stop_ids and length >= sequence.min_length:
            return self._end(sequence, "stop", token_ids=(token,), stop_token_id=token)
        if length >= sequence.length_limit:
            return self._end(sequence, "length", token_ids=(token,))
        return Tokens(
            sequence.request.request_id, (token,), cached_tokens=sequence.cached_tokens or 0
        )

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        token_ids: tuple[int, ...] = (),
        stop_token_id: int | None = None,
        error: str | None = None,
        poisoned: bool = False,
    ) -> Tokens:
        """The one way out: pages, slot and followers are given back, the user gets a reason."""
        if sequence.state is State.RUNNING:
            self._vacate(sequence, poisoned=poisoned)
            sequence.state = State.ENDED
        elif sequence.state is State.WAITING:
            self._queue.discard(sequence, State.ENDED)
        else:
            sequence.state = State.ENDED
        sequence.epoch += 1
        del self._by_id[sequence.request.request_id]
        self._drain.record(self._now, 1)
        return Tokens(
            sequence.request.request_id,
            token_ids,
            finish_reason=reason,
            stop_token_id=stop_token_id,
            cached_tokens=sequence.cached_tokens or 0,
            error=error,
        )

    def _preempt(self, sequence: Sequence) -> None:
        """Take pages and slot away; it will be computed again, what is in flight is dropped."""
        self._vacate(sequence, poisoned=False)
        sequence.epoch += 1
        self._preemptions += 1
        self._queue.push(sequence)

    def _vacate(self, sequence: Sequence, *, poisoned: bool) -> None:
        table = sequence.owned_table
        self._running.remove(sequence)
        self._free_slots.append(sequence.slot)
        self._released_slots.append(sequence.slot)
        if poisoned:
            self._kv.discard(table)
        else:
            self._kv.release(table, sequence.computed_key)
        sequence.reset()
        self._wake(sequence, None)

    # -- refusals and proofs ----------------------------------------------------------------

    def _check_queue(self, request: Generate) -> None:
        if request.request_id in self._by_id:
            raise InvalidRequestError(
                f"A request with id {request.request_id!r} is running already.",
                param="request_id",
                code="duplicate_request_id",
            )
        if self.n_waiting >= self._limits.max_num_queued_reqs:
            raise OverloadedError(
                f"The queue is full: {self.n_waiting} requests are waiting.",
                retry_after_s=self._drain.retry_after_s(self.n_waiting),
            )

    def check(self) -> None:
        """Prove the invariants of queues, slots and pages; raises AssertionError."""
        running = self._running
        self._kv.check([sequence.owned_table for sequence in running])
        slots = [sequence.slot for sequence in running]
        if sorted(slots + self._free_slots) != list(range(self._limits.max_num_seqs)):
            raise AssertionError("a slot is lost or used twice")
        if sorted(running, key=lambda sequence: sequence.rank) != running:
            raise AssertionError("running sequences are out of rank")
        following = {id(other) for leader in running for _, other in leader.followers}
        for sequence in self._by_id.values():
            self._check_sequence(sequence, following)

    def _check_sequence(self, sequence: Sequence, following: set[int]) -> None:
        known = len(sequence.tokens) + sequence.in_flight
        if not sequence.committed <= sequence.scheduled <= known <= sequence.length_limit:
            raise AssertionError(f"sequence {sequence.seq_id} is ahead of itself")
        if (sequence.state is State.RUNNING) != (sequence.slot != NO_SLOT):
            raise AssertionError(f"sequence {sequence.seq_id} runs without a slot")
        if (sequence.state is State.FOLLOWING) and id(sequence) not in following:
            raise AssertionError(f"sequence {sequence.seq_id} waits for nobody")
        if sequence.table is not None and sequence.scheduled > sequence.table.capacity:
            raise AssertionError(f"sequence {sequence.seq_id} has fewer pages than positions")
