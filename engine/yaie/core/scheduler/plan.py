"""Plans a step: decodes first, then prefill chunks within the token budget, then waiting sequences,
all in one batch (as in Sarathi-Serve, Agrawal et al., 2024, arXiv 2403.02310); or a bisect step.
`RequestLifecycle` changes the state of the outputs.
"""

from collections.abc import Iterable

from yaie.core.drafter import Drafter
from yaie.core.kv_cache.radix_cache import PrefixPending
from yaie.core.scheduler.batch_builder import BatchBuilder
from yaie.core.scheduler.kv_cache_manager import Allocation
from yaie.core.scheduler.lifecycle import RequestLifecycle
from yaie.core.sequence import Sequence, SequenceStatus

MOST_FOLLOWERS = 64
"""At most this many sequences start to follow others in one step: each costs about 30 us if the
prefix is long, and 2,000 in one step delayed all running sequences by a tenth of a second.
"""


def plan(lifecycle: RequestLifecycle, budget: int, drafter: Drafter | None = None) -> BatchBuilder:
    """Plan a step of about `budget` tokens. All decodes run, even if they exceed the budget."""
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
    """Plan a step that computes the known tokens of `suspects` again, and nothing else."""
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
            continue  # a draft continues known tokens only
        table = sequence.table
        if (table is None or position >= table.capacity) and not _grow(lifecycle, sequence, step):
            continue
        if drafter is not None and (draft := _draft(sequence, drafter)):
            drafts.append((sequence, draft))
        else:
            step.decode(sequence)
    step.budget -= len(step.rows)
    for sequence, draft in drafts:  # rows with ids come last
        step.verify(sequence, draft)


def _draft(sequence: Sequence, drafter: Drafter) -> tuple[int, ...]:
    """A draft for `sequence` that fits into its pages: a draft never allocates a page, and never
    reaches the last position, whose token is not run.
    """
    end = min(sequence.last_position, sequence.owned_table.capacity)
    most = end - 1 - sequence.scheduled
    if most <= 0 or not sequence.may_draft:
        return ()
    return tuple(drafter.draft(sequence.tokens, most))[:most]


def _grow(lifecycle: RequestLifecycle, sequence: Sequence, step: BatchBuilder) -> bool:
    """Get a page for `sequence`: release shared prompts first, then preempt running sequences, the
    last in rank first. False: `sequence` itself was preempted.
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
    """Number of known tokens of `sequence` that are not scheduled yet."""
    return len(sequence.tokens) - sequence.scheduled


def _share(
    lifecycle: RequestLifecycle, step: BatchBuilder, first: Sequence, others: list[Sequence]
) -> None:
    """Share the step between `first`, a long prompt that needs several steps, and shorter prompts.
    `first` gets at least half of the budget. Prompts with at most half as many tokens left may use
    the other half, so that they need not wait for `first`.
    """
    first_left, half = _left(first), step.budget // 2
    kept, step.budget = step.budget - half, half
    shorter = [other for other in others if 2 * _left(other) <= first_left]
    _prefill(step, sorted(shorter, key=_left))
    _admit(lifecycle, step, longest=first_left // 2, least_important=first.request.priority)
    step.budget += kept
    _prefill(step, [first])


def _prefill(step: BatchBuilder, prompts: Iterable[Sequence]) -> None:
    """Continue prompts that are partly computed."""
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
    """Start waiting sequences in policy order until slots, budget or pages run out. If `longest` is
    given, stop also at a sequence with more tokens left, or with a priority value above
    `least_important`.
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
