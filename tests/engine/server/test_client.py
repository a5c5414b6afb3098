import asyncio
from typing import Any

import pytest

from yaie.config import ModelInfo
from yaie.core.messages import (
    Abort,
    Accepted,
    Command,
    Generate,
    Rejected,
    Stats,
    TokenLogprobs,
    Tokens,
)
from yaie.core.request import SamplingParams
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.generation import Generation, error_of, failure_of
from yaie_api import errors

INFO = ModelInfo(
    served_model_name="m",
    path="/m",
    architecture="A",
    parameters=1,
    weight_bytes=1,
    max_model_len=8,
    vocab_size=9,
    eos_token_ids=(0,),
    kv_pages=2,
    page_size=1,
    device="cpu",
    dtype="float32",
)


class Wire:
    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


def ready() -> tuple[AsyncEngine, Wire]:
    engine, wire = AsyncEngine(), Wire()
    engine.attach(wire, INFO)
    return engine, wire


def generate(request_id: str = "r", n: int = 1) -> Generate:
    return Generate(request_id, (1, 2), SamplingParams(n=n))


async def submitted(engine: AsyncEngine, request_id: str = "r", n: int = 1) -> Generation:
    task = asyncio.ensure_future(engine.submit(generate(request_id, n)))
    await asyncio.sleep(0)
    engine.dispatch(Accepted(request_id))
    return await task


async def rest(generation: Generation) -> list[Tokens]:
    return [tokens async for tokens in generation]


async def test_nothing_is_sent_before_an_engine_is_ready() -> None:
    with pytest.raises(errors.UnavailableError, match="loading"):
        await AsyncEngine().submit(generate())


async def test_submit_returns_only_when_accepted() -> None:
    engine, wire = ready()
    task = asyncio.ensure_future(engine.submit(generate()))
    await asyncio.sleep(0)
    assert wire.sent == [generate()]
    assert not task.done()
    engine.dispatch(Accepted("r"))
    assert (await task).request_id == "r"


async def test_a_refusal_is_raised_and_forgotten() -> None:
    engine, wire = ready()
    task = asyncio.ensure_future(engine.submit(generate()))
    await asyncio.sleep(0)
    engine.dispatch(Rejected("r", 429, "queue_full", "full", None, 2.0))
    with pytest.raises(errors.OverloadedError) as refused:
        await task
    assert refused.value.retry_after_s == 2.0
    assert engine.num_live == 0
    assert wire.sent == [generate()]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequestError),
        (404, errors.NotFoundError),
        (429, errors.OverloadedError),
        (503, errors.UnavailableError),
        (504, errors.DeadlineExceededError),
        (500, errors.EngineError),
        (418, errors.EngineError),
    ],
)
def test_refusals_map_to_the_error_tree(status: int, kind: type[errors.YaieError]) -> None:
    error = error_of(Rejected("r", status, "some_code", "why", "field"))
    assert type(error) is kind
    assert (error.message, error.param, error.code) == ("why", "field", "some_code")


async def test_what_arrives_between_two_reads_comes_as_one_message() -> None:
    engine, _ = ready()
    generation = await submitted(engine)
    engine.dispatch(Tokens("r", (1,), cached_tokens=3))
    engine.dispatch(Tokens("r", (2, 3)))
    engine.dispatch(Tokens("r", (4,), "stop", stop_token_id=4))
    assert await rest(generation) == [Tokens("r", (1, 2, 3, 4), "stop", 4, 3)]
    assert engine.num_live == 0


async def test_tokens_before_an_error_are_still_shown() -> None:
    engine, _ = ready()
    generation = await submitted(engine)
    engine.dispatch(Tokens("r", (1,)))
    engine.dispatch(Tokens("r", (), "error", error="bad"))
    assert await rest(generation) == [Tokens("r", (1,)), Tokens("r", (), "error", error="bad")]


async def test_merged_messages_keep_what_each_of_them_tells() -> None:
    engine, _ = ready()
    generation = await submitted(engine)
    one, two = (TokenLogprobs(i, -1.0, 1, (), ()) for i in (1, 2))
    engine.dispatch(Tokens("r", (1,), logprobs=(one,), prompt_logprobs=(two,), queued_s=0.5))
    engine.dispatch(Tokens("r", (2,), logprobs=(two,)))
    together = await anext(generation)
    assert together.logprobs == (one, two)
    assert together.prompt_logprobs == (two,)
    assert together.queued_s == 0.5


async def test_several_outputs_end_one_by_one() -> None:
    engine, wire = ready()
    generation = await submitted(engine, n=3)
    for index in (2, 0, 2, 1):
        engine.dispatch(Tokens("r", (index,), index=index))
    engine.dispatch(Tokens("r", (9,), "length", index=2))
    engine.dispatch(Tokens("r", (8,), "stop", index=0))
    found = [await anext(generation) for _ in range(3)]
    assert [(t.index, t.token_ids) for t in found] == [(2, (2, 2, 9)), (0, (0, 8)), (1, (1,))]
    assert engine.num_live == 1
    engine.dispatch(Tokens("r", (), "length", index=1))
    assert [t.index for t in await rest(generation)] == [1]
    assert engine.num_live == 0
    assert len(wire.sent) == 1


async def test_one_output_is_stopped_alone_and_the_last_one_ends_the_request() -> None:
    engine, wire = ready()
    generation = await submitted(engine, n=2)
    engine.dispatch(Tokens("r", (1,), index=0))
    generation.stop(0)
    generation.stop(0)
    assert wire.sent[1:] == [Abort("r", 0)]
    engine.dispatch(Tokens("r", (2,), index=0))
    engine.dispatch(Tokens("r", (), "abort", index=0))
    engine.dispatch(Tokens("r", (3,), index=1))
    assert (await anext(generation)).token_ids == (3,)
    generation.stop(1)
    assert wire.sent[2:] == [Abort("r")]
    assert engine.num_live == 0


def test_failures_map_to_the_error_tree() -> None:
    late = failure_of(Tokens("r", (), "error", error="late", error_code="deadline_exceeded"))
    assert isinstance(late, errors.DeadlineExceededError)
    assert late.headers == {"x-should-retry": "false"}
    other = failure_of(Tokens("r", (), "error", error="nan", error_code="not_finite"))
    assert (other.status, other.message, other.code) == (500, "nan", "not_finite")
    assert failure_of(Tokens("r", (), "error")).code == "engine_error"


@pytest.mark.parametrize("code", ["grammar", "no_token_allowed"])
def test_what_the_request_itself_made_impossible_is_its_fault(code: str) -> None:
    failure = failure_of(Tokens("r", (), "error", error="too much", error_code=code))
    assert isinstance(failure, errors.InvalidRequestError)
    assert (failure.status, failure.retryable, failure.code) == (400, False, code)


async def test_when_to_come_back_follows_from_the_engine_s_rate() -> None:
    engine, _ = ready()
    assert engine.retry_after_s == 1.0
    stats = Stats(1, 19, 3, 4, 5, 6, 7, 8, 9, 10, 11.0, 12, completion_rate=2.0)
    engine.dispatch(stats)
    assert engine.retry_after_s == 10.0
    engine.detach(EngineState.RESTARTING)
    assert engine.retry_after_s == 5.0


async def test_closing_early_aborts_once() -> None:
    engine, wire = ready()
    generation = await submitted(engine)
    generation.close()
    generation.close()
    assert wire.sent[1:] == [Abort("r")]
    engine.dispatch(Tokens("r", (1,)))
    assert engine.num_live == 0


async def test_closing_after_the_end_sends_nothing() -> None:
    engine, wire = ready()
    generation = await submitted(engine)
    engine.dispatch(Tokens("r", (1,), "length"))
    generation.close()
    assert len(wire.sent) == 1


async def test_cancelling_submit_aborts() -> None:
    engine, wire = ready()
    task = asyncio.ensure_future(engine.submit(generate()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.sent[1:] == [Abort("r")]


async def test_a_death_fails_what_had_begun_and_keeps_what_had_not() -> None:
    engine, _ = ready()
    begun, waiting = await submitted(engine, "a"), await submitted(engine, "b")
    engine.dispatch(Tokens("a", (1,)))
    engine.detach(EngineState.RESTARTING)
    assert await anext(begun) == Tokens("a", (1,))
    with pytest.raises(errors.UnavailableError, match="stopped while"):
        await anext(begun)
    wire = Wire()
    engine.attach(wire, INFO)
    assert wire.sent == [generate("b")]
    engine.dispatch(Accepted("b"))
    engine.dispatch(Tokens("b", (5,), "length"))
    assert [t.token_ids for t in await rest(waiting)] == [(5,)]
    assert engine.restarts == 1


async def test_a_second_death_fails_what_was_kept() -> None:
    engine, _ = ready()
    waiting = await submitted(engine)
    for _ in range(2):
        engine.detach(EngineState.RESTARTING)
        engine.attach(Wire(), INFO)
    with pytest.raises(errors.UnavailableError):
        await anext(waiting)


@pytest.mark.parametrize("state", [EngineState.FAILED, EngineState.STOPPED])
async def test_a_final_end_leaves_nobody_waiting(state: EngineState) -> None:
    engine, _ = ready()
    accepted = await submitted(engine, "a")
    unanswered = asyncio.ensure_future(engine.submit(generate("b")))
    await asyncio.sleep(0)
    engine.detach(state)
    results: list[Any] = await asyncio.gather(rest(accepted), unanswered, return_exceptions=True)
    assert all(isinstance(result, errors.UnavailableError) for result in results)
    assert engine.num_live == 0


async def test_silence_is_measured_from_the_last_message() -> None:
    now = 100.0
    engine = AsyncEngine(clock=lambda: now)
    now = 107.0
    assert engine.silence_s == 7.0
    engine.heard()
    assert engine.silence_s == 0.0


async def test_snapshots_are_kept_and_late_tokens_ignored() -> None:
    engine, _ = ready()
    stats = Stats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11.0, 12)
    engine.dispatch(stats)
    engine.dispatch(Tokens("unknown", (1,)))
    assert engine.stats is stats


class Told:
    """Receives, as an answer does."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def receive(self, tokens: Tokens) -> None:
        self.heard.append(tokens.token_ids)

    def fail(self, error: errors.YaieError) -> None:
        self.heard.append(error.code)


class Space:
    is_full = False
    on_room = staticmethod(lambda: None)


async def test_a_receiver_hears_each_turn_once_and_waits_while_there_is_no_room() -> None:
    engine, _ = ready()
    generation, told, space = await submitted(engine), Told(), Space()
    engine.dispatch(Tokens("r", (1,)))
    generation.deliver_to(told, space)
    engine.dispatch(Tokens("r", (2,)))
    engine.dispatch(Tokens("r", (3,)))
    await asyncio.sleep(0)
    assert told.heard == [(1,), (2, 3)]
    space.is_full = True
    engine.dispatch(Tokens("r", (4,)))
    await asyncio.sleep(0)
    engine.dispatch(Tokens("r", (5,)))
    engine.detach(EngineState.FAILED)
    await asyncio.sleep(0)
    assert told.heard == [(1,), (2, 3)]
    space.is_full = False
    generation.deliver()
    assert told.heard == [(1,), (2, 3), (4, 5), "engine_died"]
