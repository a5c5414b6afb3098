"""What readers of /prefixes are sent, how slow they may be, and what a request has tied."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from yaie.core.kv_cache.radix_tree import pack
from yaie.core.messages import TiePrefixKeys, WatchPrefixes
from yaie.server.answers.prefix_tracker import PrefixTracker
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.prefix_feed import MAX_LINES, PrefixFeed
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCallPart
from yaie_api.prefix import Outcome, PrefixIndex, PrefixUpdate, decode, keys

KEY = b"secret"
FIRST = PrefixUpdate(7, 0, parts=1)


def change(sequence: int, key: int) -> PrefixUpdate:
    return PrefixUpdate(7, sequence, ((key, 16),))


async def read(lines: AsyncIterator[bytes], index: PrefixIndex) -> None:
    """Read once, and apply all lines of it."""
    for line in (await anext(lines)).splitlines():
        assert index.apply(decode(line)) is not Outcome.NEEDS_SNAPSHOT


async def test_readers_that_come_at_any_time_get_all_keys() -> None:
    feed, early, late = PrefixFeed(wanted=True), PrefixIndex(), PrefixIndex()
    feed.take(FIRST)
    first = feed.lines()
    await read(first, early)
    waiting = asyncio.ensure_future(read(first, early))
    await asyncio.sleep(0)
    feed.take(change(1, 5))
    await waiting
    feed.take(change(2, 6))
    await read(feed.lines(), late)
    await read(first, early)
    assert early.tokens == late.tokens == {5: 16, 6: 16}
    assert early.sequence == late.sequence == 2


async def test_a_slow_reader_gets_a_snapshot_and_not_the_backlog() -> None:
    feed, index = PrefixFeed(wanted=True), PrefixIndex()
    feed.take(FIRST)
    lines = feed.lines()
    await read(lines, index)
    for sequence in range(1, MAX_LINES + 3):
        feed.take(change(sequence, sequence))
    sent = await anext(lines)
    assert decode(sent).parts == 1
    assert index.apply(decode(sent)) is Outcome.APPLIED
    assert len(index.tokens) == feed.num_keys == MAX_LINES + 2


async def test_a_reader_that_keeps_up_gets_what_it_missed_in_one_piece() -> None:
    feed, index = PrefixFeed(wanted=True), PrefixIndex()
    feed.take(FIRST)
    lines = feed.lines()
    await read(lines, index)
    for sequence in range(1, MAX_LINES + 1):
        feed.take(change(sequence, sequence))
    sent = await anext(lines)
    assert sent.count(b"\n") == MAX_LINES
    assert all(index.apply(decode(line)) is Outcome.APPLIED for line in sent.splitlines())


async def test_streams_end_with_the_engine_process_and_with_the_server() -> None:
    engine = AsyncEngine(watch_prefixes=True)
    assert not engine.prefixes.is_open
    engine.dispatch(FIRST)
    lines = engine.prefixes.lines()
    await read(lines, PrefixIndex())
    waiting = asyncio.ensure_future(anext(lines, None))
    await asyncio.sleep(0)
    engine.detach(EngineState.RESTARTING)
    assert await waiting is None
    assert not engine.prefixes.is_open
    engine.dispatch(PrefixUpdate(8, 0, parts=1))
    waiting = asyncio.ensure_future(anext(engine.prefixes.lines()))
    assert b'"epoch":8' in (await waiting or b"")
    engine.prefixes.close()
    assert not engine.prefixes.is_open


class Wire:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, command: Any) -> None:
        self.sent.append(command)


async def test_the_engine_is_watched_only_where_keys_are_wanted_and_again_after_a_gap() -> None:
    for wanted in (False, True):
        engine, wire = AsyncEngine(watch_prefixes=wanted), Wire()
        engine.attach(wire, None)  # type: ignore[arg-type]
        assert wire.sent == [WatchPrefixes()] * wanted
    engine.dispatch(FIRST)
    engine.dispatch(change(3, 5))
    assert wire.sent == [WatchPrefixes()] * 2


def tracked(is_chat: bool, *parts: Part, kept: int = 3, n: int = 100) -> list[TiePrefixKeys]:
    """What is tied for a conversation with `n` prompt tokens and 3 of an answer."""
    sent: list[TiePrefixKeys] = []
    tracker = PrefixTracker(
        keys(BODY, KEY), KEY, salt="s", prompt=range(n), is_chat=is_chat, tie=sent.append
    )  # fmt: skip
    tracker.take((501, 502))
    tracker.take((503,))
    for part in parts:
        if isinstance(part, TextPart):
            tracker.text(part.text)
        else:
            tracker.parts([part])
    tracker.finish(kept)
    return sent


BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi " * 400}]}


def test_prompt_keys_are_tied_once_each_with_its_share_of_the_tokens() -> None:
    (prompt,) = tracked(False)
    found = keys(BODY, KEY)
    assert (prompt.salt, prompt.tokens) == ("s", pack(range(100)))
    assert [key for key, _ in prompt.keys] == list(found.keys)
    covered = [tokens for _, tokens in prompt.keys]
    assert covered == sorted(covered)
    assert covered[-1] == 100
    assert covered[1] == -(-100 * found.ends[1] // found.total_bytes)


@pytest.mark.parametrize(
    ("parts", "answer", "covered"),
    [
        ((TextPart("Hel"), TextPart("lo")), {"content": "Hello"}, 102),
        (
            (TextPart("I look."), ToolCallPart(0, "{", "c1", "look"), ToolCallPart(0, "}")),
            {
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                    }
                ],
            },
            102,
        ),
        ((ReasoningPart("Hm."), TextPart("Hello")), {"content": "Hello"}, 100),
    ],
)
def test_the_next_turn_finds_the_key_of_the_answer(
    parts: tuple[Part, ...], answer: dict[str, Any], covered: int
) -> None:
    _, tied = tracked(True, *parts)
    messages = [*BODY["messages"], {"role": "assistant", **answer}, {"role": "user", "content": ""}]
    ((key, tokens),) = tied.keys
    assert key == keys(BODY | {"messages": messages}, KEY).keys[-2]
    assert (tokens, len(tied.tokens)) == (covered, 4 * covered)
    assert pack([501, 502]) in tied.tokens or covered == 100
