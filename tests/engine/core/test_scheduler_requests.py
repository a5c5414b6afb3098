"""Requests that are more than a prompt and tokens: scores, vectors, grammars, deadlines, bounds."""

from typing import Any

import pytest

from engine_harness import (
    PAGE,
    VOCAB,
    ParityMatcher,
    Rig,
    add,
    commit,
    generate,
    make_scheduler,
    refuse,
    rows,
    schedule,
    step,
)
from fakes.stub_runner import score, vector
from yaie.core.messages import TokenLogprobs

# -- what the device is told ------------------------------------------------------------------


def test_a_slot_knows_stop_ids_and_where_the_prompt_ends() -> None:
    scheduler = make_scheduler(eos_token_ids=(9, 2))
    add(scheduler, "a", [1, 2, 3], stop_token_ids=(5,))
    add(scheduler, "b", [4], stop_token_ids=(5,), ignore_eos=True)
    first, second = schedule(scheduler).inits
    assert (first.stop_ids, first.prompt_tokens) == ((2, 5, 9), 3)
    assert (second.stop_ids, second.prompt_tokens) == ((5,), 1)


@pytest.mark.parametrize(
    "sampling", [{"repetition_penalty": 1.1}, {"presence_penalty": 1}, {"bad_words_ids": ((1, 2),)}]
)
def test_a_slot_gets_the_past_only_where_sampling_looks_at_it(sampling: dict[str, Any]) -> None:
    scheduler = make_scheduler(num_pages=6)
    add(scheduler, "plain", [1, 2])
    add(scheduler, "looks", [3, 4, 5], **sampling)
    plain, looks = schedule(scheduler).inits
    assert plain.history is None
    assert looks.history == ((3, 4, 5), ())


def test_a_sequence_that_starts_again_tells_what_it_had_said() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [3, 4, 5], frequency_penalty=0.5)
    step(scheduler, token=8)
    step(scheduler, token=9)
    scheduler._lifecycle.preempt(scheduler._lifecycle.running[0])
    assert schedule(scheduler).inits[0].history == ((3, 4, 5), (8, 9))


# -- only the prompt --------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_without_tokens_to_make_a_request_ends_with_its_prompt(depth: int) -> None:
    rig = Rig(depth=depth, budget=3, max_model_len=8)
    rig.run(generate("a", range(8), max_tokens=0))
    end = rig.port.finish("a")
    assert (end.finish_reason, end.token_ids) == ("length", ())
    assert rig.scheduler.stats().generated_tokens == 0


@pytest.mark.parametrize("pooling", ["last", "mean", "classify"])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_pooled_request_gets_one_vector(pooling: Any, depth: int) -> None:
    rig = Rig(depth=depth, budget=3)
    rig.run(generate("first", range(10)))
    rig.run(generate("a", range(10), pooling=pooling, n=4))
    end = rig.port.finish("a")
    assert end.finish_reason == "stop"
    assert end.pooled == vector(range(10), 10 if pooling == "mean" else 0)
    assert end.cached_tokens == (0 if pooling == "mean" else 8)


def test_a_vector_that_never_came_is_an_error() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2], pooling="last")
    (end,) = step(scheduler)
    assert (end.finish_reason, end.error_code) == ("error", "engine_error")


def test_a_mean_that_was_interrupted_starts_again() -> None:
    scheduler = make_scheduler(host_pages=9, swap_min_tokens=1)
    add(scheduler, "a", range(9), pooling="mean")
    commit(scheduler, schedule(scheduler, budget=5))
    scheduler._lifecycle.preempt(scheduler._lifecycle.running[0])
    batch = schedule(scheduler)
    assert (batch.swap_out, batch.swap_in) == ((), ())
    assert rows(batch) == [(0, 0, 9, False)]


# -- log-probabilities ------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [3, 32])
def test_a_prompt_is_scored_whole_though_it_is_cached(budget: int) -> None:
    rig = Rig(budget=budget)
    prompt = [5, 6, 7, 8, 9, 10, 11, 12, 13]
    rig.run(generate("first", prompt))
    rig.run(generate("a", prompt, prompt_logprobs=2, max_tokens=2, n=2))
    first, *others = rig.port.messages("a")
    assert first.prompt_logprobs is not None
    assert list(first.prompt_logprobs) == [
        score(prompt[:at], prompt[at], 2) for at in range(1, len(prompt))
    ]
    assert [m.prompt_logprobs for m in others + rig.port.messages("a", 1)] == [None] * 3
    assert rig.port.finish("a").cached_tokens == 0


def test_a_prompt_of_one_token_has_no_scores() -> None:
    rig = Rig()
    rig.run(generate("a", [5], prompt_logprobs=0, max_tokens=0))
    assert rig.port.finish("a").prompt_logprobs == ()


def test_scores_that_were_collected_are_not_computed_again() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(12), prompt_logprobs=0)
    batch = schedule(scheduler, budget=9)
    assert batch.rows[0].targets == tuple(range(1, 10))
    found = tuple(TokenLogprobs(target, -1.0, 1, (), ()) for target in range(1, 10))
    commit(scheduler, batch, prompt_logprobs=(found,))
    scheduler._lifecycle.preempt(scheduler._lifecycle.running[0])
    batch = schedule(scheduler)
    assert batch.rows[0].start == 2 * PAGE
    assert batch.rows[0].targets == (9, 10, 11)
    rest = tuple(TokenLogprobs(target, -2.0, 1, (), ()) for target in (9, 10, 11))
    (event,) = commit(scheduler, batch, prompt_logprobs=(rest,))
    assert event.prompt_logprobs is not None
    assert [one.token_id for one in event.prompt_logprobs] == list(range(1, 12))
    assert [one.logprob for one in event.prompt_logprobs[7:]] == [-1.0, -2.0, -2.0, -2.0]


def test_log_probabilities_come_with_their_tokens() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1], logprobs=0, max_tokens=1)
    add(scheduler, "b", [2])
    one = TokenLogprobs(7, -0.5, 1, (), ())
    events = commit(scheduler, schedule(scheduler), logprobs=(one, None))
    assert [event.logprobs for event in events] == [(one,), ()]


# -- grammars -----------------------------------------------------------------------------------


def test_a_complete_grammar_ends_the_output() -> None:
    scheduler = make_scheduler()
    scheduler.add(generate("a", [1], min_tokens=5, max_tokens=9), ParityMatcher(length=2))
    (event,) = step(scheduler, token=8)
    assert event.finish_reason is None
    (event,) = step(scheduler, token=9)
    assert (event.finish_reason, event.token_ids, event.stop_token_id) == ("stop", (9,), None)


def test_a_token_that_the_grammar_does_not_allow_is_an_error() -> None:
    scheduler = make_scheduler()
    scheduler.add(generate("a", [1]), ParityMatcher(length=2))
    (event,) = step(scheduler, token=7)
    assert (event.finish_reason, event.error_code, event.token_ids) == ("error", "grammar", ())


def test_only_rows_that_sample_and_still_count_have_matchers() -> None:
    scheduler = make_scheduler()
    for name, first in (("a", 1), ("b", 21)):
        scheduler.add(generate(name, range(first, first + 6)), ParityMatcher(length=9))
    add(scheduler, "plain", [1])
    batch = schedule(scheduler, budget=9)
    assert [number for number, _ in scheduler.matchers(batch)] == [0]
    scheduler.abort("a")
    assert scheduler.matchers(batch) == []


# -- time ---------------------------------------------------------------------------------------


def test_a_request_ends_at_its_deadline_whether_it_runs_or_waits() -> None:
    scheduler = make_scheduler(max_num_seqs=1, request_timeout_s=8.0)
    scheduler.add(generate("runs", [1], timeout_s=5.0, n=2), arrived_s=100.0)
    scheduler.add(generate("waits", [2]), arrived_s=100.0)
    schedule(scheduler, now=101.0)
    assert scheduler.expire(104.9) == []
    ended = scheduler.expire(105.0)
    assert {(e.request_id, e.index, e.error_code) for e in ended} == {
        ("runs", 0, "deadline_exceeded"),
        ("runs", 1, "deadline_exceeded"),
    }
    assert [e.request_id for e in scheduler.expire(108.0)] == ["waits"]
    scheduler.check()


def test_deadlines_of_what_has_ended_do_not_pile_up() -> None:
    scheduler = make_scheduler(request_timeout_s=1e9)
    for number in range(500):
        add(scheduler, str(number), [1])
        scheduler.abort(str(number))
    assert len(scheduler._lifecycle._deadlines._heap) < 10


def test_the_first_message_of_an_output_tells_how_long_it_waited() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(generate("a", [1, 2], n=2, max_tokens=2), arrived_s=10.0)
    waited = [
        event.queued_s
        for now in (12.0, 13.0, 14.0, 15.0)
        for event in commit(scheduler, schedule(scheduler, now=now), now=now + 0.5)
    ]
    assert waited == [2.0, None, 4.0, None]


def test_the_rate_at_which_outputs_end_is_published() -> None:
    scheduler = make_scheduler()
    for second in range(60):
        add(scheduler, str(second), [1], n=2, max_tokens=1)
        commit(scheduler, schedule(scheduler, now=second), now=second)
        commit(scheduler, schedule(scheduler, now=second), now=second + 1)
    assert scheduler.stats().completion_rate == pytest.approx(2.0, rel=0.1)


# -- bounds -------------------------------------------------------------------------------------


def test_constraints_that_exclude_each_other_are_refused_before_anything_runs() -> None:
    scheduler = make_scheduler()
    answer = refuse(scheduler, "a", [1], allowed_token_ids=(4, 5), bad_words_ids=((5,), (4,)))
    assert (answer.status, answer.code) == (400, "no_token_allowed")
    assert "allow no token" in answer.message
    add(scheduler, "b", [1], allowed_token_ids=(4, 5), bad_words_ids=((4,), (5, 5)))


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"allowed_token_ids": (1, VOCAB)}, "allowed_token_ids"),
        ({"bad_words_ids": ((1,), (2, VOCAB))}, "bad_words"),
        ({"stop_token_ids": (VOCAB,)}, "stop_token_ids"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 6}, "prompt_logprobs"),
        ({"timeout_s": 0.0}, "timeout"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(sampling: dict[str, Any], param: str) -> None:
    answer = refuse(make_scheduler(max_logprobs=5), "a", [1], **sampling)
    assert (answer.status, answer.param, answer.code) == (400, param, None)


@pytest.mark.parametrize("most", [-1, VOCAB])
def test_all_log_probabilities_may_be_asked_for_where_that_is_allowed(most: int) -> None:
    scheduler = make_scheduler(max_logprobs=most)
    add(scheduler, "a", [1], logprobs=-1, prompt_logprobs=40)


def test_a_request_that_makes_no_tokens_may_fill_the_context() -> None:
    scheduler = make_scheduler(max_model_len=8)
    add(scheduler, "a", range(8), max_tokens=0)
    add(scheduler, "b", range(8), pooling="last", max_tokens=5)
    assert refuse(scheduler, "c", range(9), max_tokens=0).code == "context_length_exceeded"


def test_an_unknown_policy_is_no_scheduler() -> None:
    with pytest.raises(ValueError, match="alphabetical"):
        make_scheduler(policy="alphabetical")


def test_resetting_the_cache_forgets_all_but_what_runs() -> None:
    scheduler = make_scheduler()
    add(scheduler, "done", range(9), max_tokens=1)
    step(scheduler)
    add(scheduler, "runs", range(20, 29))
    step(scheduler)
    assert scheduler.stats().pages_cached == 2
    scheduler.reset_prefix_cache()
    scheduler.check()
    assert scheduler.stats().pages_cached == 0
    add(scheduler, "again", range(9))
    add(scheduler, "shares", [*range(20, 28), 1])
    batch = schedule(scheduler)
    assert [row.start for row in batch.rows[1:]] == [0, 8]
