"""Decides which sequences run in the next step. Uses no tensors and no clock.

`EngineLoop` calls add, abort and expire, then schedule, then commit (or fail_step) once per step,
in order. Several steps may be scheduled before the first is committed; `yaie.core.sequence` says
how.

    Scheduler ── plan                  what a step holds
        ├─────── StepCommitter         what its result means
        ├─────── FaultIsolator         which request made it fail
        └─────── RequestLifecycle      where every output is: waiting, running, ended
                    ├─── WaitingQueue, SlotAllocator
                    └─── KVCacheManager ── RadixCache, HostPages
"""

import random
from typing import NamedTuple

from yaie.core.batch import Batch, StepResult
from yaie.core.drafter import Drafter
from yaie.core.group import SequenceGroup
from yaie.core.kv_cache.host_pages import HostPages
from yaie.core.kv_cache.prefix_keys import PrefixKeyIndex
from yaie.core.kv_cache.radix_cache import RadixCache
from yaie.core.kv_cache.spec import KVSpec
from yaie.core.matcher import Matcher
from yaie.core.messages import Accepted, Generate, Rejected, Stats, TiePrefixKeys, Tokens
from yaie.core.outputs import Failure, failed
from yaie.core.queues.policies import queue_for
from yaie.core.scheduler.batch_builder import BatchBuilder
from yaie.core.scheduler.commit import StepCommitter
from yaie.core.scheduler.fault_isolation import FaultIsolator, Suspect
from yaie.core.scheduler.kv_cache_manager import SWAP_MIN_TOKENS, KVCacheManager, SwapOut
from yaie.core.scheduler.lifecycle import RequestLifecycle
from yaie.core.scheduler.plan import bisect_step, plan
from yaie.core.scheduler.validation import (
    RequestLimits,
    consume_resumed,
    duplicate,
    rejection,
    validate,
)
from yaie.core.sequence import Sequence, SequenceStatus, StopLimits
from yaie_api.errors import OverloadedError, YaieError
from yaie_api.prefix.updates import Load

_BEFORE_ALL = 1 << 48
"""What is resumed was begun elsewhere before: it goes before what waits here, as what was preempted
does, and in its own order.
"""


class _InFlightStep(NamedTuple):
    """A step that is not committed yet. `sequences` is aligned with the batch's rows."""

    batch: Batch
    sequences: list[Sequence]
    swap_out: list[SwapOut]


class Scheduler:
    """Schedules the sequences of one engine.

    Args:
        spec: KV cache groups and page size.
        num_pages: pages in each KV cache group's pool, scratch page included.
        max_num_seqs: number of slots, that is, of sequences that run at once.
        max_model_len: longest sequence in tokens; the size of the KV cache may lower it.
        vocab_size: token ids are 0 .. vocab_size - 1.
        max_num_queued_reqs: if this many outputs wait, further requests are refused with 429.
        eos_token_ids: token ids that end a sequence unless its request ignores them.
        enable_prefix_caching: share and keep computed pages.
        share_prompts: outputs of one request share their prompt's pages. If this and prefix caching
            are off, every sequence starts at position 0.
        seed: seed of the generator that gives a seed to requests without one; None: random.
        policy: the waiting queue's policy, a name in `POLICIES`.
        host_pages: pages in host memory for preempted sequences; 0: they are computed again.
        swap_min_tokens: sequences with fewer computed positions are always computed again.
        request_timeout_s: time limit, in seconds, of requests without their own; None: no limit.
        max_logprobs: maximum of `logprobs` that a request may ask for; -1: no maximum.
        drafter: makes drafts; None: a decoding sequence gets one token per step. With a drafter, a
            sequence that may have drafts joins a step only when all its tokens are committed.

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
        share_prompts: bool = True,
        seed: int | None = None,
        policy: str = "fcfs",
        host_pages: int = 0,
        swap_min_tokens: int = SWAP_MIN_TOKENS,
        request_timeout_s: float | None = None,
        max_logprobs: int = 20,
        drafter: Drafter | None = None,
    ) -> None:
        self.drafter = drafter
        self._kv = RadixCache(spec, num_pages, enable_prefix_caching=enable_prefix_caching)
        self._host = HostPages(host_pages)
        self._kv_cache = KVCacheManager(
            self._kv, self._host, swap_min_tokens=swap_min_tokens, share_prompts=share_prompts
        )
        self._lifecycle = RequestLifecycle(
            self._kv_cache, queue_for(policy, self._kv), max_num_seqs
        )
        self._committer = StepCommitter(self._lifecycle, vocab_size)
        self._fault_isolator = FaultIsolator()
        longest = min(max_model_len, self._kv.capacity_tokens)
        self._limits = RequestLimits(max_num_queued_reqs, longest, vocab_size, max_logprobs)
        self._stop_limits = StopLimits(frozenset(eos_token_ids), longest)
        self._timeout_s = request_timeout_s
        self._random = random.Random(seed)  # noqa: S311 - sampling seeds, not secrets
        self._steps: dict[int, _InFlightStep] = {}
        self._next_step_id = 0
        self._next_arrival = 0
        self._spare_slots = max_num_seqs
        """Slots that the last step left free while no output waited: so many arrivals do not count
        as waiting.
        """

    # -- queries and commands ---------------------------------------------------------------

    @property
    def n_running(self) -> int:
        return len(self._lifecycle.running)

    @property
    def n_waiting(self) -> int:
        """Outputs without pages: queued, preempted, or waiting for a shared prefix."""
        return self._lifecycle.n_waiting

    @property
    def n_decoding(self) -> int:
        """Running sequences whose prompt is computed or in flight."""
        return sum(sequence.decoding for sequence in self._lifecycle.running)

    @property
    def has_prefill(self) -> bool:
        """Whether a step could hold prefill. If not, its token budget has no effect."""
        return self._lifecycle.n_waiting > 0 or self.n_decoding < len(self._lifecycle.running)

    @property
    def prefill_position(self) -> int:
        """Position where the first incomplete running prompt continues; 0: there is none."""
        for sequence in self._lifecycle.running:
            if not sequence.decoding:
                return sequence.scheduled
        return 0

    def arriving_per_s(self, now: float) -> float:
        """Prompt tokens per second that arrive and must be computed."""
        return self._lifecycle.prompts.per_second(now)

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens that can be served."""
        return self._limits.max_model_len

    @property
    def is_idle(self) -> bool:
        """Whether there is no live request and no step to commit."""
        return not self._lifecycle.n_live and not self._steps

    def deadline_s(self, request: Generate, arrived_s: float) -> float | None:
        """The request's deadline, in seconds on the clock of `arrived_s`; None: it has no time
        limit.
        """
        timeout_s = self._timeout_s if request.timeout_s is None else request.timeout_s
        return None if timeout_s is None else arrived_s + timeout_s

    def validate(self, request: Generate, *, compiling: int = 0) -> None:
        """Refuse a request that cannot be queued. `compiling`: number of other requests that wait
        for their grammar; they count as waiting.

        Raises:
            InvalidRequestError: the request can never run, or its id is in use.
            OverloadedError: the queue is full.

        """
        validate(request, self._limits)
        if request.request_id in self._lifecycle:
            raise duplicate(request.request_id)
        waiting = max(self._lifecycle.n_waiting - self._spare_slots, 0) + compiling
        if waiting >= self._limits.max_num_queued_reqs:
            raise OverloadedError(
                f"The queue is full: {waiting} requests are waiting.",
                retry_after_s=self._lifecycle.completions.retry_after_s(waiting),
            )

    def add(
        self,
        request: Generate,
        matcher: Matcher | None = None,
        *,
        arrived_s: float | None = None,
        compiling: int = 0,
    ) -> Accepted | Rejected:
        """Queue a request, or return why it is refused. `matcher`: of its grammar, if it has one.
        `arrived_s`: time of arrival; None: now. `compiling`: as in `validate`.
        """
        try:
            self.validate(request, compiling=compiling)
            consume_resumed(matcher, request)
        except YaieError as error:
            return rejection(request.request_id, error)
        came_s = self._lifecycle.now if arrived_s is None else arrived_s
        seed = request.sampling.seed
        group = SequenceGroup(
            request,
            self._stop_limits,
            arrival=self._next_arrival - (_BEFORE_ALL if request.resumed_token_ids else 0),
            seed=self._random.getrandbits(63) if seed is None else seed,
            matcher=matcher,
            arrived_s=came_s,
            deadline_s=self.deadline_s(request, came_s),
        )
        self._next_arrival += 1
        self._lifecycle.prompts.arrived(came_s, len(request.prompt_token_ids))
        self._lifecycle.enter(group)
        return Accepted(request.request_id)

    def abort(self, request_id: str, index: int | None = None) -> list[Tokens]:
        """End a request now, or one output of it. Does nothing if it has ended or is unknown."""
        events: list[Tokens] = []
        self._lifecycle.abort(request_id, index, events)
        return events

    def expire(self, now: float) -> list[Tokens]:
        """End the requests whose deadline has passed."""
        events: list[Tokens] = []
        self._lifecycle.now = now
        self._lifecycle.expire(events)
        return events

    @property
    def prefix_keys(self) -> PrefixKeyIndex:
        """Which prefix keys are cached."""
        return self._kv.prefix_keys

    def tie(self, command: TiePrefixKeys) -> None:
        """Publish prefix keys as long as their tokens are cached."""
        self._kv.tie(command.salt, command.tokens, command.keys)

    def load(self) -> Load:
        """How busy the engine is, in tokens. Takes time for each running sequence."""
        page_size, free = self._kv.page_size, self._kv.free_pages
        return Load(
            waiting=self.n_waiting,
            running=self.n_running,
            queued_tokens=self._lifecycle.queued_tokens,
            kv_tokens_total=self._kv.capacity_tokens,
            kv_tokens_free=free * page_size,
            kv_tokens_cached=self._kv.cached_pages * page_size,
            requests=self._next_arrival,
        )

    def reset_prefix_cache(self) -> None:
        """Evict all cached pages that are not in use."""
        self._kv.forget_cached()

    def schedule(self, now: float, budget: int) -> Batch | None:
        """Plan the next step, of about `budget` tokens (all decodes run). None: nothing can run
        now. `now`: in seconds, as in all methods.
        """
        lifecycle = self._lifecycle
        lifecycle.completions.record(now, 0)
        lifecycle.now = now
        if self._fault_isolator and self._steps:
            return None  # wait for the results of all steps in flight
        step = self._plan(budget)
        self._spare_slots = 0 if lifecycle.n_waiting else lifecycle.slots.free
        return self._seal(step) if step.rows else None

    def matchers(self, batch: Batch) -> list[tuple[int, Matcher]]:
        """The rows of a scheduled batch that sample under a grammar: (row number, matcher)."""
        if not self._lifecycle.n_grammars:
            return []
        sequences = self._steps[batch.step_id].sequences
        return [
            (number, sequence.matcher)
            for number, sequence in enumerate(sequences)
            if sequence.matcher is not None
            and batch.rows[number].sample
            and batch.rows[number].epoch == sequence.epoch
        ]

    def commit(self, result: StepResult, now: float) -> list[Tokens]:
        """Apply the result of the oldest step in flight. Returns the messages for users."""
        self._lifecycle.now = now
        flight = self._steps.pop(result.step_id)
        return self._committer.take(flight.batch, flight.sequences, result)

    def fail_step(self, step_id: int, failure: Failure) -> list[Tokens]:
        """Handle a step that raised. Only the request that caused the error ends, with `failure`;
        to find it, the step's sequences run again in smaller steps. Host pages that the step was to
        fill are dropped, because their copies may not have been made.
        """
        events: list[Tokens] = []
        lifecycle = self._lifecycle
        batch, sequences, swap_out = self._steps.pop(step_id)
        lifecycle.slots.release_again(batch.releases)
        suspects = [
            Suspect(sequence, min(row.start + row.n_tokens, len(sequence.tokens)))
            for sequence, row in zip(sequences, batch.rows, strict=True)
            if sequence.epoch == row.epoch
        ]
        culprits = self._fault_isolator.record(suspects, alone=len(batch.rows) == 1)
        for sequence, _ in suspects:
            if sequence in culprits:
                lifecycle.end(sequence, failed(failure), events)
            else:
                lifecycle.suspend(sequence)
        for swap in swap_out:
            if swap.sequence.host is swap.host:
                self._kv_cache.forget(swap.sequence)
                if swap.sequence.state is SequenceStatus.RUNNING:  # it was swapped in again already
                    lifecycle.preempt(swap.sequence)
        return events

    def fail_all(self, failure: Failure) -> list[Tokens]:
        """End every live request with `failure`, because the engine stops."""
        events: list[Tokens] = []
        self._lifecycle.end_all(failure, events, only_running=False)
        return events

    def fail_running(self, failure: Failure) -> list[Tokens]:
        """End the requests that have a running output with `failure`, because the engine fails."""
        events: list[Tokens] = []
        self._lifecycle.end_all(failure, events, only_running=True)
        return events

    def stats(self) -> Stats:
        """A snapshot, without the scratch page. The loop fills in step time and budget."""
        lifecycle = self._lifecycle
        return Stats(
            running=self.n_running,
            waiting=self.n_waiting,
            pages_total=self._kv.num_pages - 1,
            pages_free=self._kv.free_pages,
            pages_cached=self._kv.cached_pages,
            prompt_tokens=lifecycle.prompt_tokens,
            cached_prompt_tokens=lifecycle.cached_prompt_tokens,
            generated_tokens=self._committer.generated_tokens,
            preemptions=lifecycle.preemptions,
            steps=self._next_step_id,
            step_seconds=0.0,
            step_budget_tokens=0,
            completion_rate=lifecycle.completions.per_second,
            host_pages_total=self._host.total,
            host_pages_used=self._host.total - self._host.free,
            swaps_out=self._kv_cache.swaps_out,
            swaps_in=self._kv_cache.swaps_in,
            prefix_keys=len(self._kv.prefix_keys),
        )

    def check(self) -> None:
        """Prove the invariants of queues, slots and pages; raises AssertionError."""
        self._fault_isolator.check(self._lifecycle.check())

    def _plan(self, budget: int) -> BatchBuilder:
        """Plan a bisect step while there are suspects and enough pages for them, else an ordinary
        step.
        """
        while self._fault_isolator and (suspects := self._fault_isolator.next_group()):
            step = bisect_step(self._lifecycle, suspects, budget)
            if step.rows:
                return step
            for sequence in self._fault_isolator.postpone():
                self._lifecycle.queue.push(sequence)
        return plan(self._lifecycle, budget, self.drafter)

    def _seal(self, step: BatchBuilder) -> Batch:
        swap_out = self._kv_cache.seal()
        copies = tuple(copy for swap in swap_out for copy in swap.copies)
        batch = step.batch(self._next_step_id, self._lifecycle.slots.take_releases(), copies)
        self._steps[batch.step_id] = _InFlightStep(batch, step.sequences, swap_out)
        self._next_step_id += 1
        return batch
