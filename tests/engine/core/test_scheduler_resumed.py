"""An output that another engine began goes on as one that was preempted here."""

from typing import Any

import msgspec
import pytest

from engine_harness import VOCAB, FakeGrammars, Rig, generate, make_scheduler, schedule
from yaie.core.messages import Accepted, Generate, Rejected
from yaie.core.request import Grammar


def resumed(request: Generate, *token_ids: int) -> Generate:
    return msgspec.structs.replace(request, resumed_token_ids=token_ids)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("budget", [3, 32])
@pytest.mark.parametrize("cut", [1, 5, 11])
def test_it_says_what_is_left(depth: int, budget: int, cut: int) -> None:
    whole, rest = Rig(depth=depth), Rig(depth=depth, budget=budget)
    request = generate("a", [3, 1, 4], max_tokens=12, frequency_penalty=0.5, min_tokens=9)
    whole.run(request)
    said = whole.port.tokens("a")
    rest.run(resumed(request, *said[:cut]))
    assert rest.port.tokens("a") == said[cut:]
    assert rest.port.finish("a").finish_reason == whole.port.finish("a").finish_reason


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_its_grammar_goes_on_where_it_was(cut: int) -> None:
    request = generate("a", [3, 1], max_tokens=12, grammar=Grammar("regex", "5"))
    whole, rest = Rig(grammars=FakeGrammars()), Rig(grammars=FakeGrammars())
    whole.run(request)
    said = whole.port.tokens("a")
    assert len(said) == 5
    rest.run(resumed(request, *said[:cut]))
    assert rest.port.tokens("a") == said[cut:]
    assert rest.port.finish("a").finish_reason == "stop"


def test_what_its_grammar_does_not_allow_is_refused() -> None:
    request = generate("a", [3, 1], max_tokens=12, grammar=Grammar("regex", "5"))
    rig = Rig(grammars=FakeGrammars())
    rig.run(request)
    said = rig.port.tokens("a")
    for ids in ((said[0] + 1,), tuple(said)):
        rig.port.events.clear()
        rig.run(resumed(request, *ids))
        (answer,) = rig.port.of(Rejected)
        assert answer.status == 400


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"n": 2, "temperature": 1.0}, (1,)),
        ({"prompt_logprobs": 1}, (1,)),
        ({"max_tokens": 2}, (1, 2)),
        ({"max_tokens": None}, tuple([1] * 125)),
        ({}, (VOCAB,)),
        ({}, (-1,)),
    ],
)
def test_what_cannot_go_on_is_refused(fields: dict[str, Any], ids: tuple[int, ...]) -> None:
    answer = make_scheduler().add(resumed(generate("a", [1, 2, 3], **fields), *ids))
    assert isinstance(answer, Rejected)
    assert answer.status == 400


def test_it_goes_before_what_has_not_begun_and_in_its_own_order() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for request in (
        generate("first", [1]),
        generate("second", [2]),
        resumed(generate("third", [3]), 7),
        resumed(generate("fourth", [4]), 7),
    ):
        assert isinstance(scheduler.add(request), Accepted)
    order = []
    for _ in range(4):
        schedule(scheduler)
        (running,) = scheduler._lifecycle.running
        order.append(running.request_id)
        scheduler.abort(running.request_id)
    assert order == ["third", "fourth", "first", "second"]


def test_a_slot_gets_what_was_said() -> None:
    scheduler = make_scheduler()
    scheduler.add(resumed(generate("a", [3, 4, 5], frequency_penalty=0.5), 8, 9))
    (init,) = schedule(scheduler).inits
    assert (init.history, init.prompt_tokens) == (((3, 4, 5), (8, 9)), 3)
