"""What a step holds, and how much work its planning may be."""

from engine_harness import add, commit, make_scheduler, rows, schedule
from yaie.core.scheduler.plan import MOST_FOLLOWERS


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


def test_a_long_prompt_shares_its_steps_with_short_ones() -> None:
    scheduler = make_scheduler(max_num_seqs=4)
    add(scheduler, "long", [1] * 60)
    assert rows(schedule(scheduler, budget=16)) == [(0, 0, 16, False)]
    add(scheduler, "short", [2] * 6)
    assert rows(schedule(scheduler, budget=16)) == [(1, 0, 6, True), (0, 16, 10, False)]
    assert rows(schedule(scheduler, budget=17))[1:] == [(0, 26, 16, False)], "alone it has all"


def test_a_long_prompt_keeps_half_of_its_steps() -> None:
    scheduler = make_scheduler(max_num_seqs=8)
    add(scheduler, "long", [1] * 90)
    schedule(scheduler, budget=16)
    for number in range(4):
        add(scheduler, f"short {number}", [2 + number] * 12)
    assert rows(schedule(scheduler, budget=16)) == [(1, 0, 8, False), (0, 16, 8, False)]
    assert rows(schedule(scheduler, budget=16)) == [
        (1, 8, 4, True),
        (2, 0, 4, False),
        (0, 24, 8, False),
    ]


def test_a_long_prompt_does_not_share_with_one_that_takes_as_long() -> None:
    scheduler = make_scheduler(max_num_seqs=4)
    add(scheduler, "long", [1] * 60)
    schedule(scheduler, budget=16)
    add(scheduler, "as long", [2] * 40)
    assert rows(schedule(scheduler, budget=16)) == [(0, 16, 16, False)]


def test_a_long_prompt_does_not_share_with_what_is_less_important() -> None:
    scheduler = make_scheduler(max_num_seqs=4, policy="priority")
    add(scheduler, "long", [1] * 60, priority=0)
    schedule(scheduler, budget=16)
    add(scheduler, "short", [2] * 6, priority=1)
    assert rows(schedule(scheduler, budget=16)) == [(0, 16, 16, False)]
