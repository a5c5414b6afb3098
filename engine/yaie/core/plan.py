"""What a step holds: decodes first, then prefill chunks within the token budget, then what waits,
all mixed in one batch; or else a trial. It decides in what order; the `Roster` moves outputs.
"""

from collections.abc import Iterable

from yaie.core.kv_manager import Shared
from yaie.core.placement import Placed
from yaie.core.roster import Roster
from yaie.core.sequence import Sequence, State
from yaie.core.step import Step

MOST_FOLLOWERS = 64
"""In one step so many are told to wait for a prefix: each costs some 30 us where that is long, and
2,000 of them at once held up all that ran by a tenth of a second.
"""


def plan(roster: Roster, budget: int) -> Step:
    """A step of about `budget` tokens; all decodes run, however many they are."""
    step = Step(budget)
    _decode(roster, step)
    prompts = [sequence for sequence in roster.running if not sequence.decoding]
    if prompts and _left(prompts[0]) > step.budget > 1:
        _share(roster, step, prompts[0], prompts[1:])
    else:
        _prefill(step, prompts)
        _admit(roster, step)
    return step


def trial(roster: Roster, suspects: Iterable[Sequence], budget: int) -> Step:
    """A step that computes again what `suspects` know, and holds nobody else."""
    step = Step(budget)
    for sequence in suspects:
        if step.budget <= 0:
            break
        if sequence.state is State.RUNNING:
            step.prefill(sequence)
        elif roster.seats.free and isinstance(placed := roster.admit(sequence), Placed):
            roster.start(sequence, placed)
            step.start(sequence, placed)
    return step


def _decode(roster: Roster, step: Step) -> None:
    running = roster.running
    index = 0
    while index < len(running):  # preemption shortens the list from its end
        sequence = running[index]
        index += 1
        position = sequence.scheduled
        if not sequence.decoding or position >= sequence.last_position:
            continue
        table = sequence.table
        if (table is not None and position < table.capacity) or _grow(roster, sequence, step):
            step.decode(sequence)
    step.budget -= len(step.rows)


def _grow(roster: Roster, sequence: Sequence, step: Step) -> bool:
    """Get a page, giving up trunks, then preempting from the end of the ranks; False: it preempted
    itself.
    """
    while (pages := roster.placement.extend(sequence)) is None:
        if roster.placement.reclaim():
            continue
        victim = roster.running[-1]
        roster.preempt(victim)
        if victim is sequence:
            return False
    step.append(sequence, pages)
    return True


def _left(sequence: Sequence) -> int:
    """Tokens of its prompt that are still to be computed."""
    return len(sequence.tokens) - sequence.scheduled


def _share(roster: Roster, step: Step, first: Sequence, others: list[Sequence]) -> None:
    """`first` is a long prompt, which takes several steps. It has half of this one for certain;
    prompts that are done much sooner may have the other half, so that they need not wait for it.
    """
    first_left, half = _left(first), step.budget // 2
    kept, step.budget = step.budget - half, half
    shorter = [other for other in others if 2 * _left(other) <= first_left]
    _prefill(step, sorted(shorter, key=_left))
    _admit(roster, step, longest=first_left // 2, least_important=first.request.priority)
    step.budget += kept
    _prefill(step, [first])


def _prefill(step: Step, prompts: Iterable[Sequence]) -> None:
    """Go on with prompts that are computed in part."""
    for sequence in prompts:
        if step.budget <= 0:
            return
        step.prefill(sequence)


def _admit(
    roster: Roster, step: Step, *, longest: int | None = None, least_important: int = 0
) -> None:
    """Start waiting sequences in policy order until slots, budget or pages run out, or until one
    comes that is longer than `longest`, or less important.
    """
    if step.budget <= 0 or not roster.n_waiting or not roster.seats.free:
        return
    queue, n_followers = roster.queue, 0
    queue.refresh(roster.running)
    while step.budget > 0 and roster.seats.free and (sequence := queue.peek()):
        if longest is not None and (
            _left(sequence) > longest or sequence.request.priority > least_important
        ):
            return
        outcome = roster.admit(sequence)
        if outcome is None:
            return
        queue.pop()
        if isinstance(outcome, Shared):
            roster.follow(sequence, outcome)
            n_followers += 1
            if n_followers == MOST_FOLLOWERS:
                return
        else:
            roster.start(sequence, outcome)
            step.start(sequence, outcome)
