"""What a step holds, and how much work its planning may be."""

from engine_harness import add, commit, make_scheduler, schedule
from yaie.core.plan import MOST_FOLLOWERS


def test_a_step_tells_few_to_wait_for_a_prefix_so_that_it_stays_short() -> None:
    scheduler = make_scheduler(max_num_seqs=4)
    for number in range(2 * MOST_FOLLOWERS + 1):
        add(scheduler, f"alike {number}", [*range(8), 40])
    add(scheduler, "other", [30, 31])
    other = 2 * MOST_FOLLOWERS + 1
    started = []
    for _ in range(3):
        batch = schedule(scheduler, budget=12)
        started.append([init.seq_id for init in batch.inits])
    assert started == [[0], [], [other]]


def test_who_was_told_to_wait_starts_before_those_behind() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    for number in range(MOST_FOLLOWERS + 1):
        add(scheduler, f"alike {number}", [*range(8), 40], max_tokens=1)
    add(scheduler, "other", [30, 31])
    order: list[int] = []
    while not scheduler.is_idle:
        batch = schedule(scheduler)
        order += [init.seq_id for init in batch.inits]
        commit(scheduler, batch)
    assert order == list(range(MOST_FOLLOWERS + 2))
