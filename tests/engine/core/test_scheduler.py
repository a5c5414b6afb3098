"""Scheduling decisions, one case each."""

import pytest

from engine_harness import (
    PAGE,
    VOCAB,
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
from yaie.core.batch import FORBIDDEN, StepResult
from yaie.core.outputs import CLOSING, Failure

# -- what a step holds ----------------------------------------------------------------------


def test_decodes_come_first_and_prefill_chunks_fill_the_budget() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2, 3])
    step(scheduler)
    add(scheduler, "b", [4] * 6)
    add(scheduler, "c", [5] * 9)
    batch = schedule(scheduler, budget=10)
    assert rows(batch) == [(0, 3, 1, True), (1, 0, 6, True), (2, 0, 3, False)]
    assert [row.tokens for row in batch.rows] == [(), (4,) * 6, (5,) * 3]
    commit(scheduler, batch)
    assert rows(schedule(scheduler, budget=10)) == [
        (0, 4, 1, True),
        (1, 6, 1, True),
        (2, 3, 6, True),
    ]


def test_every_decode_runs_even_without_budget() -> None:
    scheduler = make_scheduler()
    for name in "abc":
        add(scheduler, name, [1, 2, ord(name) % VOCAB])
    while scheduler.n_waiting or scheduler.n_decoding < 3:
        step(scheduler)
    assert len(schedule(scheduler, budget=0).rows) == 3


def test_a_batch_carries_changes_only() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(PAGE - 1))
    first = schedule(scheduler)
    (init,) = first.inits
    assert (init.slot, init.seq_id, init.pages) == (first.rows[0].slot, 0, ((1,),))
    commit(scheduler, first)
    second = schedule(scheduler)
    assert (second.inits, second.appends, second.releases) == ((), (), ())
    commit(scheduler, second)
    (append,) = schedule(scheduler).appends
    assert (append.slot, append.group, append.pages) == (init.slot, 0, (2,))


def test_a_slot_is_released_in_the_next_batch_before_it_is_used_again() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    add(scheduler, "a", [1], max_tokens=1)
    add(scheduler, "b", [2], max_tokens=1)
    step(scheduler)
    batch = schedule(scheduler)
    assert batch.releases == (0,)
    assert [init.seq_id for init in batch.inits] == [1]


def test_nothing_to_run_gives_no_batch() -> None:
    assert make_scheduler().schedule(0.0, 32) is None


def test_a_seed_is_taken_as_given_or_derived_from_the_engines() -> None:
    def seeds() -> list[int]:
        scheduler = make_scheduler(seed=5)
        add(scheduler, "a", [1], seed=-9)
        add(scheduler, "b", [2])
        return [init.seed for init in schedule(scheduler).inits]

    assert seeds() == seeds()
    assert seeds()[0] == -9
    assert 0 <= seeds()[1] < 2**63


# -- steps in flight ------------------------------------------------------------------------


def test_a_decode_may_be_scheduled_before_its_token_is_known() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2, 3])
    first, second = schedule(scheduler), schedule(scheduler)
    assert rows(second) == [(0, 3, 1, True)]
    assert second.rows[0].tokens == ()
    assert commit(scheduler, first)[0].token_ids == (7,)
    assert commit(scheduler, second)[0].token_ids == (7,)


def test_length_stops_count_tokens_in_flight() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2, 3], max_tokens=2)
    first, second = schedule(scheduler), schedule(scheduler)
    assert scheduler.schedule(0.0, 32) is None
    commit(scheduler, first)
    assert commit(scheduler, second)[0].finish_reason == "length"


def test_a_ghost_token_after_the_end_is_never_published() -> None:
    scheduler = make_scheduler(eos_token_ids=(7,))
    add(scheduler, "a", [1, 2, 3])
    first, second = schedule(scheduler), schedule(scheduler)
    assert commit(scheduler, first)[0].finish_reason == "stop"
    assert commit(scheduler, second) == []
    assert scheduler.stats().generated_tokens == 1


def test_rows_of_a_failed_step_fall_in_later_steps_too() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2, 3])
    first, second = schedule(scheduler), schedule(scheduler)
    (end,) = scheduler.fail_step(first.step_id, Failure("engine_error", "no memory"))
    assert (end.finish_reason, end.error, end.error_code) == ("error", "no memory", "engine_error")
    assert commit(scheduler, second) == []
    assert scheduler.is_idle


def test_what_is_in_flight_is_not_there_for_others_when_its_step_fails() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(20))
    first, second = schedule(scheduler, budget=8), schedule(scheduler, budget=8)
    commit(scheduler, first)
    scheduler.fail_step(second.step_id, CLOSING)
    add(scheduler, "b", range(20))
    assert rows(schedule(scheduler)) == [(1, 8, 12, True)]


def test_rows_from_before_a_preemption_fall_even_when_the_sequence_runs_again() -> None:
    scheduler = make_scheduler(num_pages=4)
    add(scheduler, "a", [1] * 3, max_tokens=9)
    add(scheduler, "b", [2] * 3, max_tokens=9)
    step(scheduler)  # a page each, and one for the reserve
    old = schedule(scheduler)
    for _ in range(4):
        schedule(scheduler)
    assert scheduler.stats().preemptions == 1
    scheduler.abort("a")
    again = schedule(scheduler)
    assert [row.seq_id for row in again.rows] == [1]
    assert commit(scheduler, old) == []
    assert scheduler.n_running == 1


def test_releases_of_a_failed_step_are_sent_again() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1], max_tokens=1)
    add(scheduler, "b", [2], max_tokens=1)
    step(scheduler)
    add(scheduler, "c", [3])
    lost = schedule(scheduler)
    assert sorted(lost.releases) == [0, 1]
    scheduler.fail_step(lost.step_id, CLOSING)
    add(scheduler, "d", [4])
    assert set(schedule(scheduler).releases) == {0, 1}


# -- sharing --------------------------------------------------------------------------------


def test_a_repeated_prompt_is_taken_from_the_cache_except_its_last_token() -> None:
    rig = Rig()
    rig.run(generate("first", range(16)))
    rig.run(generate("second", range(16)))
    assert rig.port.finish("first").cached_tokens == 0
    assert rig.port.finish("second").cached_tokens == 12
    assert rig.port.tokens("first") == rig.port.tokens("second")


def test_the_answer_is_cached_for_the_next_turn() -> None:
    rig = Rig()
    rig.run(generate("first", range(16), max_tokens=9))
    answer = rig.port.tokens("first")
    rig.run(generate("second", [*range(16), *answer, 1]))
    assert rig.port.finish("second").cached_tokens == 24


def test_of_two_requests_with_the_same_prefix_the_second_waits_for_the_first() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(12))
    add(scheduler, "b", [*range(8), 40, 41])
    add(scheduler, "c", [30, 31])
    batch = schedule(scheduler, budget=10)
    assert [row.seq_id for row in batch.rows] == [0]
    commit(scheduler, batch)
    batch = schedule(scheduler, budget=10)
    assert rows(batch) == [(0, 10, 2, True), (1, 8, 2, True), (2, 0, 2, True)]
    assert scheduler.stats().cached_prompt_tokens == 8


def test_a_follower_goes_on_alone_when_its_leader_leaves() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(12))
    add(scheduler, "b", range(12))
    batch = schedule(scheduler, budget=8)
    scheduler.abort("a")
    commit(scheduler, batch)
    assert rows(schedule(scheduler)) == [(1, 0, 12, True)]


# -- out of pages ---------------------------------------------------------------------------


def test_the_newest_sequence_is_preempted_and_computed_again() -> None:
    requests = [generate(name, [i] * 7, max_tokens=9) for i, name in enumerate("abc")]
    rig = Rig(num_pages=9)
    rig.run(*requests)
    assert rig.scheduler.stats().preemptions > 0
    for request in requests:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]
        assert rig.port.finish(request.request_id).cached_tokens == 0


def test_a_lower_priority_is_preempted_before_a_newer_request() -> None:
    scheduler = make_scheduler(num_pages=5)
    add(scheduler, "cheap", [1] * 4, priority=5)
    add(scheduler, "dear", [2] * 3)
    step(scheduler)
    step(scheduler)
    assert scheduler.n_running == 2
    while scheduler.n_running == 2:
        step(scheduler)
    assert [row.seq_id for row in schedule(scheduler).rows] == [1]
    assert scheduler.stats().preemptions == 1


def test_admission_keeps_a_page_for_each_running_sequence() -> None:
    scheduler = make_scheduler(num_pages=4)
    add(scheduler, "a", [1] * 4)
    add(scheduler, "b", [2] * 8, max_tokens=1)
    assert [row.seq_id for row in schedule(scheduler).rows] == [0]
    assert scheduler.n_waiting == 1


# -- ends -----------------------------------------------------------------------------------


def test_end_of_sequence_stops_and_is_named() -> None:
    scheduler = make_scheduler(eos_token_ids=(7,))
    add(scheduler, "a", [1])
    (end,) = step(scheduler, token=7)
    assert (end.finish_reason, end.token_ids, end.stop_token_id) == ("stop", (7,), 7)
    assert scheduler.is_idle


def test_end_of_sequence_can_be_ignored_but_stop_token_ids_count() -> None:
    scheduler = make_scheduler(eos_token_ids=(7,))
    add(scheduler, "a", [1], ignore_eos=True, stop_token_ids=(8,))
    assert step(scheduler, token=7)[0].finish_reason is None
    assert step(scheduler, token=8)[0].stop_token_id == 8


def test_nothing_stops_before_min_tokens() -> None:
    scheduler = make_scheduler(eos_token_ids=(7,))
    add(scheduler, "a", [1], min_tokens=3)
    assert [step(scheduler, token=7)[0].finish_reason for _ in range(3)] == [None, None, "stop"]


def test_max_tokens_and_the_context_end_a_request_by_length() -> None:
    scheduler = make_scheduler(max_model_len=6)
    add(scheduler, "a", [1], max_tokens=2)
    add(scheduler, "b", [2, 2, 2], max_tokens=None)
    ends = [event for _ in range(3) for event in step(scheduler) if event.finish_reason]
    assert [(end.request_id, end.finish_reason) for end in ends] == [
        ("a", "length"),
        ("b", "length"),
    ]
    assert scheduler.stats().generated_tokens == 5


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_abort_ends_a_request_wherever_it_is(steps: int) -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(12))
    add(scheduler, "b", range(12))
    for _ in range(steps):
        step(scheduler, budget=5)
    for name in "ba":
        (end,) = scheduler.abort(name)
        assert (end.request_id, end.finish_reason) == (name, "abort")
        scheduler.check()
    assert scheduler.abort("a") == []
    assert scheduler.is_idle


def test_rows_that_are_not_finite_fail_alone() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1] * 9)
    add(scheduler, "b", [2] * 9)
    events = commit(scheduler, schedule(scheduler), bad=(0,))
    assert [(event.request_id, event.finish_reason) for event in events] == [
        ("a", "error"),
        ("b", None),
    ]
    add(scheduler, "again", [1] * 9)
    commit(scheduler, schedule(scheduler))
    assert scheduler.stats().cached_prompt_tokens == 0


@pytest.mark.parametrize(
    ("token", "code"), [(FORBIDDEN, "no_token_allowed"), (0, "not_finite"), (9, "not_finite")]
)
def test_a_constrained_row_fails_by_its_constraints_or_by_the_model(token: int, code: str) -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1], allowed_token_ids=(9,))
    (event,) = commit(scheduler, schedule(scheduler), token, bad=(0,))
    assert (event.finish_reason, event.error_code) == ("error", code)
    assert scheduler.is_idle


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_sampled_token_outside_the_vocabulary_fails_its_request(token: int) -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1])
    assert step(scheduler, token=token)[0].finish_reason == "error"
    assert scheduler.is_idle


def test_fail_all_tells_everyone() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for name in "abc":
        add(scheduler, name, [1, 2, 3, 4, 5])
    step(scheduler)
    ends = scheduler.fail_all(CLOSING)
    assert sorted(end.request_id for end in ends) == ["a", "b", "c"]
    assert {end.error for end in ends} == {CLOSING.message}
    assert scheduler.is_idle


# -- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "max_tokens"), [(20, None), (20, 1), (13, 8), (900, None)])
def test_what_exceeds_the_context_is_refused(length: int, max_tokens: int | None) -> None:
    answer = refuse(make_scheduler(max_model_len=20), "a", [1] * length, max_tokens=max_tokens)
    assert (answer.status, answer.code) == (400, "context_length_exceeded")
    assert answer.message.startswith("This model's maximum context length is 20 tokens")


@pytest.mark.parametrize("least", [9, 2**40])
def test_min_tokens_for_which_there_is_no_room_are_refused(least: int) -> None:
    """The device counts in 32 bits: one that got there would end the whole step."""
    scheduler = make_scheduler(max_model_len=20)
    answer = refuse(scheduler, "a", [1] * 12, max_tokens=None, min_tokens=least)
    assert (answer.status, answer.param) == (400, "min_tokens")
    assert "at most 8" in answer.message
    add(scheduler, "b", [1] * 12, max_tokens=None, min_tokens=8)


def test_what_just_fits_the_context_is_taken() -> None:
    scheduler = make_scheduler(max_model_len=20)
    add(scheduler, "a", [1] * 12, max_tokens=8)
    add(scheduler, "b", [1] * 19, max_tokens=None)


def test_what_can_never_fit_the_cache_is_refused() -> None:
    scheduler = make_scheduler(num_pages=4, max_model_len=128)
    assert scheduler.max_model_len == 3 * PAGE
    answer = refuse(scheduler, "a", [1] * 12, max_tokens=1)
    assert answer.message.startswith("This model's maximum context length is 12 tokens")
    add(scheduler, "b", [1] * 11, max_tokens=1)


@pytest.mark.parametrize("prompt", [[], [-1], [VOCAB], [1, 2**40]])
def test_prompts_outside_the_vocabulary_are_refused(prompt: list[int]) -> None:
    answer = refuse(make_scheduler(), "a", prompt)
    assert (answer.status, answer.param) == (400, "prompt")


def test_stop_token_ids_outside_the_vocabulary_are_refused() -> None:
    assert refuse(make_scheduler(), "a", [1], stop_token_ids=(VOCAB,)).param == "stop_token_ids"


def test_a_live_request_id_cannot_be_used_twice() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1], max_tokens=1)
    assert refuse(scheduler, "a", [1]).code == "duplicate_request_id"
    step(scheduler)
    add(scheduler, "a", [1])


def test_arrivals_that_can_run_at_once_do_not_count_as_waiting() -> None:
    scheduler = make_scheduler(max_num_seqs=3, max_num_queued_reqs=2)
    for index in range(5):  # before the engine has made a step of any
        add(scheduler, f"burst-{index}", [1])
    assert refuse(scheduler, "sixth", [1]).code == "queue_full"
    step(scheduler)
    assert (scheduler.n_running, scheduler.n_waiting) == (3, 2)
    assert refuse(scheduler, "late", [1]).code == "queue_full"


def test_a_full_queue_says_when_to_come_back() -> None:
    scheduler = make_scheduler(max_num_seqs=1, max_num_queued_reqs=4)
    for second in range(20):  # one request ends every second
        add(scheduler, f"warm-{second}", [1], max_tokens=1)
        batch = scheduler.schedule(float(second), 8)
        assert batch is not None
        scheduler.commit(StepResult(batch.step_id, (7,), (True,)), float(second))
    for index in range(4):
        add(scheduler, f"waiting-{index}", [1])
    answer = refuse(scheduler, "late", [1])
    assert (answer.status, answer.code) == (429, "queue_full")
    assert answer.retry_after_s == pytest.approx(4.0, rel=0.2)
