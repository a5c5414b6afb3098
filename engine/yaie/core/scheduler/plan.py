"""What a step holds: decodes first, then prefill chunks within the token budget, then what waits,
all mixed in one batch; or else a bisect step. This module decides the order; `RequestLifecycle`
moves the outputs.
"""

from collections.abc import Iterable

from yaie.core.drafter import Drafter
from yaie.core.kv_cache.radix_cache import PrefixPending
from yaie.core.scheduler.batch_builder import BatchBuilder
from yaie.core.scheduler.kv_cache_manager import Allocation
from yaie.core.scheduler.lifecycle import RequestLifecycle
from yaie.core.sequence import Sequence, SequenceStatus

MOST_FOLLOWERS = 64
"""In one step so many are told to wait for a prefix: each costs some 30 us where that is long, and
2,000 of them at once held up all that ran by a tenth of a second.
"""


def plan(lifecycle: RequestLifecycle, budget: int, drafter: Drafter | None = None) -> BatchBuilder:
    """A step of about `budget` tokens; all decodes run, however many they are."""
    step = BatchBuilder(budget)
    _decode(lifecycle, step, drafter)
    prompts = [sequence for sequence in lifecycle.running if not sequence.decoding]
    if prompts and _left(prompts[0]) > step.budget > 1:
        _share(lifecycle, step, prompts[0], prompts[1:])
    else:
        _prefill(step, prompts)
        _admit(lifecycle, step)
    return step


def bisect_step(
    lifecycle: RequestLifecycle, suspects: Iterable[Sequence], budget: int
) -> BatchBuilder:
    """A step that computes again what `suspects` know, and holds nobody else."""
    step = BatchBuilder(budget)
    for sequence in suspects:
        if step.budget <= 0:
            break
        if sequence.state is SequenceStatus.RUNNING:
            step.prefill(sequence)
        elif lifecycle.slots.free and isinstance(
            allocation := lifecycle.admit(sequence), Allocation
        ):
            lifecycle.start(sequence, allocation)
            step.start(sequence, allocation)
    return step


def _decode(lifecycle: RequestLifecycle, step: BatchBuilder, drafter: Drafter | None) -> None:
    running = lifecycle.running
    drafts: list[tuple[Sequence, tuple[int, ...]]] = []
    index = 0
    while index < len(running):  # preemption shortens the list from its end
        sequence = running[index]
        index += 1
        position = sequence.scheduled
        if not sequence.decoding or position >= sequence.last_position:
            continue
        if drafter is not None and sequence.may_draft and sequence.in_flight:
            continue  # guesses follow tokens that are known
        table = sequence.table
        if (table is None or position >= table.capacity) and not _grow(lifecycle, sequence, step):
            continue
        if drafter is not None and (draft := _draft(sequence, drafter)):
            drafts.append((sequence, draft))
        else:
            step.decode(sequence)
    step.budget -= len(step.rows)
    for sequence, draft in drafts:  # rows that bring ids come last
        step.verify(sequence, draft)


def _draft(sequence: Sequence, drafter: Drafter) -> tuple[int, ...]:
    """Guesses for the pages that `sequence` has: they never cost a page or reach the last position,
    whose token is not run.
    """
    end = min(sequence.last_position, sequence.owned_table.capacity)
    most = end - 1 - sequence.scheduled
    if most <= 0 or not sequence.may_draft:
        return ()
    return tuple(drafter.draft(sequence.tokens, most))[:most]


def _grow(lifecycle: RequestLifecycle, sequence: Sequence, step: BatchBuilder) -> bool:
    """Get a page: give up shared prompts first, then preempt from the end of the ranks. False: it
    preempted itself.
    """
    while (pages := lifecycle.kv_cache.extend(sequence)) is None:
        if lifecycle.kv_cache.reclaim():
            continue
        victim = lifecycle.running[-1]
        lifecycle.preempt(victim)
        if victim is sequence:
            return False
    step.append(sequence, pages)
    return True


def _left(sequence: Sequence) -> int:
    """Tokens of its prompt that are still to be computed."""
    return len(sequence.tokens) - sequence.scheduled


def _share(
    lifecycle: RequestLifecycle, step: BatchBuilder, first: Sequence, others: list[Sequence]
) -> None:
    """`first` is a long prompt, which takes several steps. It has half of this one for certain;
    prompts that are done much sooner may have the other half, so that they need not wait for it.
    """
    first_left, half = _left(first), step.budget // 2
    kept, step.budget = step.budget - half, half
    shorter = [other for other in others if 2 * _left(other) <= first_left]
    _prefill(step, sorted(shorter, key=_left))
    _admit(lifecycle, step, longest=first_left // 2, least_important=first.request.priority)
    step.budget += kept
    _prefill(step, [first])


def _prefill(step: BatchBuilder, prompts: Iterable[Sequence]) -> None:
    """Go on with prompts that are computed in part."""
    for sequence in prompts:
        if step.budget <= 0:
            return
        step.prefill(sequence)


def _admit(
    lifecycle: RequestLifecycle,
    step: BatchBuilder,
    *,
    longest: int | None = None,
    least_important: int = 0,
) -> None:
    """Start waiting sequences in policy order until slots, budget or pages run out, or until one
    comes that is longer than `longest`, or less important.
    """
    if step.budget <= 0 or not lifecycle.n_waiting or not lifecycle.slots.free:
        return
    queue, n_followers = lifecycle.queue, 0
    queue.refresh(lifecycle.running)
    while step.budget > 0 and lifecycle.slots.free and (sequence := queue.peek()):
        if longest is not None and (
            _left(sequence) > longest or sequence.request.priority > least_important
        ):
            return
        outcome = lifecycle.admit(sequence)
        if outcome is None:
            return
        queue.pop()
        if isinstance(outcome, PrefixPending):
            lifecycle.follow(sequence, outcome)
            n_followers += 1
            if n_followers == MOST_FOLLOWERS:
                return
        else:
            lifecycle.start(sequence, outcome)
            step.start(sequence, outcome)
