"""Several tokens a step: the outputs are those of one token a step, in fewer steps."""

from typing import Any

import pytest

from engine_harness import (
    PAGE,
    FakeGrammars,
    Guesser,
    Rig,
    commit,
    generate,
    isolated,
    make_scheduler,
    schedule,
)
from yaie.core.batch import StepResult
from yaie.core.messages import Abort, Tokens
from yaie.core.request import Grammar

RIGHT = 10**9
"""No guess is ever wrong."""


def steps_of(rig: Rig) -> int:
    return rig.scheduler.stats().steps


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("wrong", [1, 2, 3, RIGHT])
def test_guesses_change_no_token(depth: int, wrong: int) -> None:
    requests = [
        generate(f"r{i}", range(i, i + 9), max_tokens=12, seed=i if i % 2 else None)
        for i in range(6)
    ]
    rig = Rig(depth=depth, drafter=Guesser(4, wrong=wrong))
    rig.run(*requests)
    for request in requests:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]
        assert rig.port.finish(request.request_id).finish_reason == "length"


def test_right_guesses_save_steps_and_wrong_ones_cost_none() -> None:
    request = generate("a", [1, 2, 3], max_tokens=13)
    steps = {}
    for name, drafter in {
        "none": None,
        "wrong": Guesser(3, wrong=1),
        "right": Guesser(3, wrong=RIGHT),
    }.items():
        rig = Rig(drafter=drafter, page_size=16, num_pages=8)
        rig.run(request)
        steps[name] = steps_of(rig)
    assert steps["none"] == steps["wrong"] == 13
    assert steps["right"] == 1 + 12 // 4


def test_a_stop_token_inside_a_draft_ends_the_output_there() -> None:
    whole = isolated(generate("a", [1, 2, 3], max_tokens=12))[0]
    request = generate("a", [1, 2, 3], max_tokens=12, stop_token_ids=(whole[5],))
    rig = Rig(drafter=Guesser(8, wrong=RIGHT))
    rig.run(request)
    assert rig.port.tokens("a") == whole[: whole.index(whole[5]) + 1]
    assert rig.port.finish("a").finish_reason == "stop"


def test_no_guess_goes_beyond_the_last_position_or_the_pages_that_are_there() -> None:
    scheduler = make_scheduler(drafter=Guesser(100, wrong=RIGHT))
    scheduler.add(generate("a", [1, 2], max_tokens=PAGE))
    commit(scheduler, schedule(scheduler))
    for _ in range(3):
        batch = schedule(scheduler)
        [row] = batch.rows
        assert row.start + row.n_tokens <= min(2 + PAGE - 1, -(-(row.start + 1) // PAGE) * PAGE)
        commit(scheduler, batch)


def test_a_sequence_waits_until_its_tokens_are_known_and_the_others_go_on() -> None:
    scheduler = make_scheduler(page_size=16, drafter=Guesser(2, wrong=RIGHT))
    scheduler.add(generate("drafted", [1, 2], max_tokens=8))
    scheduler.add(generate("scored", [3, 4], max_tokens=8, logprobs=0))
    commit(scheduler, schedule(scheduler))
    first, second = schedule(scheduler), schedule(scheduler)
    assert [(row.seq_id, row.n_draft) for row in first.rows] == [(1, 0), (0, 2)]
    assert [(row.seq_id, row.n_draft) for row in second.rows] == [(1, 0)]


def test_results_of_a_draft_are_dropped_when_its_request_has_gone() -> None:
    scheduler = make_scheduler(page_size=16, drafter=Guesser(2, wrong=RIGHT))
    scheduler.add(generate("a", [1, 2], max_tokens=8))
    commit(scheduler, schedule(scheduler))
    batch = schedule(scheduler)
    assert batch.rows[0].n_draft == 2
    scheduler.abort("a")
    result = StepResult(batch.step_id, (5,), (True,), more_tokens=((6, 7),))
    assert scheduler.commit(result, 1.0) == []
    scheduler.check()


def test_a_token_outside_the_vocabulary_behind_a_guess_fails_the_request_alone() -> None:
    scheduler = make_scheduler(page_size=16, drafter=Guesser(2, wrong=RIGHT))
    scheduler.add(generate("a", [1, 2], max_tokens=8))
    commit(scheduler, schedule(scheduler))
    batch = schedule(scheduler)
    result = StepResult(batch.step_id, (5,), (True,), more_tokens=((10**6,),))
    *_, end = scheduler.commit(result, 1.0)
    assert isinstance(end, Tokens)
    assert end.finish_reason == "error"
    scheduler.check()


@pytest.mark.parametrize(
    "wish",
    [
        {"logprobs": 1},
        {"repetition_penalty": 1.2},
        {"presence_penalty": 0.5},
        {"bad_words_ids": ((1, 2),)},
        {"grammar": Grammar("regex", "5")},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_what_depends_on_the_tokens_before_is_never_guessed(wish: dict[str, Any]) -> None:
    guesser = Guesser(3)
    rig = Rig(drafter=guesser, grammars=FakeGrammars())
    rig.run(generate("a", [1, 2, 3], max_tokens=6, **wish))
    assert rig.port.finish("a").finish_reason in {"length", "stop"}
    assert guesser.n_guesses == 0


def test_preemption_forgets_a_draft_in_flight() -> None:
    rig = Rig(depth=1, num_pages=8, drafter=Guesser(4))
    requests = [generate(f"r{i}", range(i, i + 6), max_tokens=14) for i in range(3)]
    rig.run(*requests)
    assert rig.scheduler.stats().preemptions > 0
    for request in requests:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]


def test_a_client_that_leaves_in_the_middle_of_a_draft_frees_everything() -> None:
    rig = Rig(depth=1, drafter=Guesser(4))
    rig.send(generate("a", [1, 2, 3], max_tokens=40))
    for _ in range(4):
        rig.step()
    rig.run(Abort("a"))
    stats = rig.scheduler.stats()
    assert stats.pages_free + stats.pages_cached == stats.pages_total
