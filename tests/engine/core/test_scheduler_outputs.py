"""Several outputs of one request: one prompt, shared pages, ends of their own."""

import pytest

from engine_harness import (
    PAGE,
    ParityMatcher,
    Rig,
    add,
    commit,
    generate,
    isolated,
    make_scheduler,
    refuse,
    rows,
    schedule,
    step,
)
from yaie.core.batch import PageCopy
from yaie.core.messages import Accepted, Tokens
from yaie.core.outputs import CLOSING, Failure

LOST = Failure("engine_error", "lost")


def ends(events: list[Tokens]) -> list[tuple[int, str | None]]:
    return [(event.index, event.finish_reason) for event in events if event.finish_reason]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, 2 * PAGE + 1])
def test_each_output_is_what_its_seed_gives_alone(
    length: int, depth: int, *, caching: bool
) -> None:
    request = generate("a", range(length), n=5, seed=3, temperature=1.0, max_tokens=9)
    rig = Rig(depth=depth, max_num_seqs=4, enable_prefix_caching=caching)
    rig.run(request)
    outputs = [rig.port.tokens("a", index) for index in range(5)]
    assert outputs == [isolated(request, index=index)[0] for index in range(5)]
    assert len(set(map(tuple, outputs))) > 1
    assert rig.scheduler.stats().prompt_tokens == length


@pytest.mark.parametrize("caching", [True, False])
def test_the_prompt_is_computed_once_and_its_last_page_copied(*, caching: bool) -> None:
    scheduler = make_scheduler(enable_prefix_caching=caching)
    add(scheduler, "a", range(PAGE + 2), n=3)
    first = schedule(scheduler)
    assert rows(first) == [(0, 0, PAGE + 2, True)]
    commit(scheduler, first)
    second = schedule(scheduler)
    last = PAGE + 1
    assert rows(second) == [(0, last + 1, 1, True), (1, last, 1, True), (2, last, 1, True)]
    shared, partial = first.inits[0].pages[0]
    for init, copy in zip(second.inits, second.copies, strict=True):
        assert init.pages[0][0] == shared
        assert copy == PageCopy(0, partial, init.pages[0][1])
        assert init.pages[0][1] != partial
    assert [row.tokens for row in second.rows[1:]] == [(last,), (last,)]


def test_nothing_is_copied_when_the_last_token_starts_a_page() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(PAGE + 1), n=2)
    step(scheduler)
    batch = schedule(scheduler)
    assert batch.copies == ()
    assert batch.inits[0].seq_id == 1


def test_seeds_follow_the_index_and_the_largest_one_wraps() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1], n=2, seed=2**63 - 1)
    first = schedule(scheduler)
    commit(scheduler, first)
    second = schedule(scheduler)
    assert [init.seed for init in first.inits + second.inits] == [2**63 - 1, -(2**63)]


def test_outputs_that_find_no_slot_share_the_prompt_later() -> None:
    scheduler = make_scheduler(max_num_seqs=1, enable_prefix_caching=False)
    add(scheduler, "a", range(2 * PAGE), n=2, max_tokens=1)
    assert ends(step(scheduler)) == [(0, "length")]
    batch = schedule(scheduler)
    assert rows(batch) == [(1, 2 * PAGE - 1, 1, True)]
    assert ends(commit(scheduler, batch)) == [(1, "length")]
    assert scheduler.is_idle
    assert scheduler.stats().pages_free == scheduler.stats().pages_total


def test_a_waiting_prompt_gives_way_when_pages_run_out() -> None:
    """Its outputs compute the prompt again, and are right."""
    requests = [
        generate("many", range(7), n=4, seed=1, temperature=1.0, max_tokens=9),
        generate("one", range(20, 27), max_tokens=12),
    ]
    rig = Rig(num_pages=7, max_num_seqs=2, enable_prefix_caching=False)
    rig.run(*requests)
    assert rig.port.tokens("one") == isolated(requests[1])[0]
    for index in range(4):
        assert rig.port.tokens("many", index) == isolated(requests[0], index=index)[0]


def test_one_output_can_be_aborted_wherever_it_is() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    add(scheduler, "a", range(5), n=4)
    step(scheduler)
    schedule(scheduler)  # 0 and 1 run, 2 waits, 3 is not born
    for index in (3, 1, 2, 0):
        assert ends(scheduler.abort("a", index)) == [(index, "abort")]
        assert scheduler.abort("a", index) == []
        scheduler.check()
    assert scheduler.n_waiting == scheduler.n_running == 0


def test_the_next_output_computes_the_prompt_when_the_first_is_aborted_early() -> None:
    scheduler = make_scheduler(enable_prefix_caching=False)
    add(scheduler, "a", range(9), n=2)
    schedule(scheduler, budget=4)
    scheduler.abort("a", 0)
    assert rows(schedule(scheduler)) == [(1, 0, 9, True)]


def test_an_abort_ends_every_output_once_and_frees_the_id() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    add(scheduler, "a", range(5), n=4)
    step(scheduler)
    batch = schedule(scheduler)  # two run, one waits, one is not born
    assert refuse(scheduler, "a", [1]).code == "duplicate_request_id"
    assert sorted(ends(scheduler.abort("a"))) == [(index, "abort") for index in range(4)]
    assert commit(scheduler, batch) == []
    add(scheduler, "a", [1])


def test_an_id_is_taken_until_the_last_output_ends() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2], n=2, max_tokens=1)
    assert ends(step(scheduler)) == [(0, "length")]
    refuse(scheduler, "a", [1])
    assert ends(step(scheduler)) == [(1, "length")]
    assert isinstance(scheduler.add(generate("a", [1])), Accepted)


def test_when_the_prompt_fails_so_does_who_waits_for_it() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(5), n=3)
    events = commit(scheduler, schedule(scheduler), bad=(0,))
    assert [(event.index, event.error_code) for event in events] == [
        (0, "not_finite"),
        (1, "not_finite"),
        (2, "not_finite"),
    ]
    assert scheduler.is_idle


def test_an_output_that_fails_later_fails_alone() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(5), n=2)
    step(scheduler)
    events = commit(scheduler, schedule(scheduler), bad=(0,))
    assert ends(events) == [(0, "error")]
    assert [event.index for event in events] == [0, 1]


def test_a_breakdown_ends_requests_that_run_in_part_as_a_whole() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    add(scheduler, "runs", range(5), n=2)
    add(scheduler, "waits", range(5), n=2)
    schedule(scheduler)
    events = scheduler.fail_running(CLOSING)
    assert {(event.request_id, event.index) for event in events} == {("runs", 0), ("runs", 1)}
    assert scheduler.n_waiting == 2


def test_a_prompt_that_fails_after_its_copies_were_scheduled_fails_nobody_else() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(5), n=2)
    step(scheduler)
    batch = schedule(scheduler)
    assert scheduler.fail_step(batch.step_id, LOST) == []
    scheduler.check()
    for index in (0, 1):  # each is tried alone, and fails
        (row,) = (batch := schedule(scheduler)).rows
        assert row.start == 4
        assert ends(scheduler.fail_step(batch.step_id, LOST)) == [(index, "error")]
        scheduler.check()
    assert scheduler.is_idle


def test_every_output_follows_the_grammar_on_its_own() -> None:
    scheduler = make_scheduler()
    request = generate("a", [1, 2], n=2)
    matcher = ParityMatcher(length=3)
    scheduler.add(request, matcher)
    batch = schedule(scheduler)
    commit(scheduler, batch, token=8)
    batch = schedule(scheduler)
    by_row = scheduler.matchers(batch)
    assert [(number, found.seen) for number, found in by_row] == [(0, (8,)), (1, ())]
    assert matcher.seen == ()


def test_who_waits_counts_by_output_in_the_queue_limit() -> None:
    scheduler = make_scheduler(max_num_seqs=1, max_num_queued_reqs=3)
    add(scheduler, "a", [1], n=4)
    assert scheduler.stats().waiting == 4
    assert refuse(scheduler, "b", [1]).status == 429
    schedule(scheduler)
    scheduler.abort("a", 3)
    add(scheduler, "b", [1])


def test_what_is_cached_is_told_of_each_output() -> None:
    rig = Rig()
    rig.run(generate("first", range(10)))
    rig.run(generate("second", range(10), n=3))
    assert [rig.port.finish("second", index).cached_tokens for index in range(3)] == [8, 8, 8]
    assert rig.scheduler.stats().cached_prompt_tokens == 8
