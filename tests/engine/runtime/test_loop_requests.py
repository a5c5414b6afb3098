"""Requests on their way into the loop: compilations, aborts, deadlines, the order of masks."""

import threading
from collections.abc import Sequence

import pytest

from engine_harness import FakeGrammars, ParityMatcher, Rig, generate, isolated
from yaie.core.matcher import Matcher
from yaie.core.messages import Abort, Accepted, Generate, Rejected, ResetPrefixCache, Stats, Tokens
from yaie.core.outputs import CLOSING
from yaie.core.request import Grammar
from yaie.runtime.grammar.pending import TokenMasks
from yaie.runtime.loop.engine_loop import COMPILING_WAIT_S, IDLE_WAIT_S, QUIET_S

FIVE = Grammar("regex", "5")


def rig(delay: int = 3, **options: object) -> Rig:
    return Rig(grammars=FakeGrammars(delay), **options)  # type: ignore[arg-type]  # passed through


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_outputs_follow_their_grammar_at_every_depth(depth: int) -> None:
    requests = [generate(f"g{i}", [i, 1], grammar=FIVE, n=2, max_tokens=9) for i in range(3)]
    requests.append(generate("plain", [7]))
    engine = rig(depth=depth)
    engine.run(*requests)
    for request in requests:
        for index in range(request.sampling.n):
            expected = isolated(request, index=index)
            found = engine.port.tokens(request.request_id, index)
            assert (found, engine.port.finish(request.request_id, index).finish_reason) == expected


def test_a_preempted_output_goes_on_where_its_grammar_was() -> None:
    engine = rig(0, num_pages=6, host_pages=4, swap_min_tokens=1)
    requests = [
        generate(f"g{i}", [i] * 6, grammar=Grammar("regex", "9"), max_tokens=12) for i in range(3)
    ]
    engine.run(*requests)
    assert engine.scheduler.stats().preemptions > 0
    for request in requests:
        assert engine.port.tokens(request.request_id) == isolated(request)[0]


def test_others_run_while_a_grammar_is_compiled() -> None:
    engine = rig(delay=5)
    engine.send(generate("slow", [1], grammar=FIVE), generate("plain", [2], max_tokens=2))
    for _ in range(3):
        engine.step()
    assert engine.port.finish("plain").finish_reason == "length"
    assert [event.request_id for event in engine.port.of(Accepted)] == ["plain"]
    engine.run()
    assert engine.port.finish("slow").finish_reason == "stop"


def test_a_loop_with_nothing_but_compilations_sleeps_shortly() -> None:
    engine = rig(delay=3)
    engine.send(generate("a", [1], grammar=FIVE, max_tokens=1))
    for _ in range(6):
        engine.step()
    short = [COMPILING_WAIT_S] * 3
    assert engine.port.waits == [QUIET_S, *short, QUIET_S, IDLE_WAIT_S]
    assert COMPILING_WAIT_S <= 0.002


def test_a_compilation_is_work_but_no_step_that_could_hang() -> None:
    engine = rig(delay=3)
    engine.send(generate("a", [1], grammar=FIVE))
    engine.step()
    engine.now += 60
    assert not engine.loop.is_idle
    assert engine.loop.last_step_age_s() == 0
    assert engine.port.of(Stats)[-1].waiting == 1


def test_a_grammar_that_cannot_be_honoured_is_refused() -> None:
    engine = rig()
    engine.run(generate("a", [1], grammar=Grammar("regex", "nonsense")))
    (answer,) = engine.port.of(Rejected)
    assert (answer.status, answer.param) == (400, "structured_outputs")
    assert engine.port.of(Tokens) == []


def test_an_engine_without_grammars_says_so() -> None:
    engine = Rig()
    engine.run(generate("a", [1], grammar=FIVE))
    (answer,) = engine.port.of(Rejected)
    assert answer.status == 400


def test_what_is_refused_anyway_costs_no_compilation() -> None:
    engine = rig(max_model_len=8)
    grammars = engine.loop._commands._compiling._grammars
    assert isinstance(grammars, FakeGrammars)
    engine.run(generate("long", [1] * 9, grammar=FIVE))
    assert engine.port.of(Rejected)[0].code == "context_length_exceeded"
    assert grammars.compiling == []


def test_who_is_compiled_counts_as_waiting() -> None:
    engine = rig(max_num_queued_reqs=2)
    engine.send(*(generate(name, [1], grammar=FIVE) for name in "abc"))
    engine.step()
    assert [answer.request_id for answer in engine.port.of(Rejected)] == ["c"]
    engine.run()


def test_an_id_is_taken_while_its_grammar_is_compiled() -> None:
    engine = rig()
    engine.run(generate("a", [1], grammar=FIVE), generate("a", [2]))
    assert [answer.code for answer in engine.port.of(Rejected)] == ["duplicate_request_id"]
    assert len(engine.port.of(Accepted)) == 1


def answers(engine: Rig) -> list[tuple[type, int | None, str | None]]:
    return [
        (type(event), getattr(event, "index", None), getattr(event, "finish_reason", None))
        for event in engine.port.events
        if not isinstance(event, Stats)
    ]


def test_an_abort_withdraws_a_compilation() -> None:
    engine = rig()
    engine.run(generate("a", [1], grammar=FIVE, n=2), Abort("a"))
    ended = [(Accepted, None, None), (Tokens, 0, "abort"), (Tokens, 1, "abort")]
    assert answers(engine) == ended
    engine.run(generate("a", [1], grammar=FIVE))  # the old compilation is not taken for the new one
    assert engine.port.of(Tokens)[-1].finish_reason == "stop"


def test_a_withdrawn_compilation_is_still_taken_from_the_compiler() -> None:
    engine = rig(delay=2)
    grammars = engine.loop._commands._compiling._grammars
    assert isinstance(grammars, FakeGrammars)
    engine.run(generate("a", [1], grammar=FIVE), Abort("a"))
    for _ in range(4):
        engine.step()
    assert grammars.compiling == []


def test_one_output_can_be_aborted_before_any_runs() -> None:
    engine = rig()
    engine.run(generate("a", [1], grammar=FIVE, n=2), Abort("a", 1))
    assert engine.port.finish("a", 1).finish_reason == "abort"
    assert engine.port.finish("a", 0).finish_reason == "stop"


def test_time_runs_while_a_grammar_is_compiled() -> None:
    engine = rig(delay=9)
    engine.send(generate("late", [1], grammar=FIVE, timeout_s=1.0))
    engine.step()
    engine.now += 1.0
    engine.step()
    assert engine.port.finish("late").error_code == "deadline_exceeded"
    assert engine.loop.is_idle
    engine.run()
    assert len(answers(engine)) == 2


def test_waiting_for_a_grammar_counts_as_queued() -> None:
    engine = rig(delay=2)
    engine.send(generate("a", [1], grammar=FIVE))
    for _ in range(4):
        engine.step()
        engine.now += 1.0
    assert engine.port.messages("a")[0].queued_s == 2.0


def test_a_deadline_ends_what_runs() -> None:
    engine = Rig(request_timeout_s=3.0)
    engine.send(generate("a", [1, 2], max_tokens=100))
    for _ in range(5):
        engine.step()
        engine.now += 1.0
    end = engine.port.finish("a")
    assert (end.finish_reason, end.error_code) == ("error", "deadline_exceeded")
    assert len(engine.port.tokens("a")) == 3
    assert engine.loop.is_idle


def test_the_cache_can_be_forgotten() -> None:
    engine = Rig()
    engine.run(generate("first", range(16)))
    engine.run(ResetPrefixCache("reset"))
    engine.run(generate("second", range(16)))
    assert engine.port.of(Accepted)[1] == Accepted("reset")
    assert engine.port.finish("second").cached_tokens == 0


def test_stopping_tells_who_was_being_compiled() -> None:
    engine = rig(delay=99)
    engine.send(generate("a", [1], grammar=FIVE))
    stop = threading.Event()
    waits = engine.port.drain

    def drain(*, wait_s: float) -> list[Generate]:
        stop.set()
        return waits(wait_s=wait_s)  # type: ignore[return-value]  # only what the test sends

    engine.port.drain = drain  # type: ignore[assignment]  # a narrower list
    engine.loop.run(stop)
    assert engine.port.finish("a").error == CLOSING.message


def test_masks_wait_for_every_earlier_token_however_deep_the_pipeline() -> None:
    """With two steps in flight the matcher must not be asked before both are committed."""
    grammars = FakeGrammars()
    engine = Rig(depth=2, grammars=grammars)
    request = generate("a", [1], grammar=Grammar("regex", "7"), max_tokens=9)
    seen: list[int] = []
    masks = grammars.masks

    def spying(rows: Sequence[tuple[int, Matcher]]) -> TokenMasks | None:
        matcher = rows[0][1]
        assert isinstance(matcher, ParityMatcher)
        seen.append(len(matcher.seen))
        return masks(rows)

    grammars.masks = spying  # type: ignore[method-assign]
    engine.run(request)
    assert seen == list(range(7))
