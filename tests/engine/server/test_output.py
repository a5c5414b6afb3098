"""One output from tokens to parts, with parsers that are easy to follow."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.text.vocabularies import byte_level
from yaie.core.messages import TokenLogprobs, Tokens
from yaie.core.request import SamplingParams
from yaie.server.answers.output import Delta, Output
from yaie.text.detokenizer import TextStream
from yaie.text.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolCallPart,
    joined,
    tool_calls,
)
from yaie.text.prompt.tokenizer import Tokenizer

TOKENIZER = Tokenizer(byte_level(), None)


class Split:
    """Text up to the first `border` is of one kind; what comes after it is plain text."""

    shown_special_tokens: frozenset[str] = frozenset()

    def __init__(self, border: str, kind: Any) -> None:
        self._border = border
        self._kind = kind
        self._passed = False

    def push(self, text: str) -> list[Part]:
        if self._passed:
            return [TextPart(text)] if text else []
        before, found, after = text.partition(self._border)
        self._passed = bool(found)
        parts = [self._kind(before), TextPart(after)]
        return [part for part in parts if part.text]

    def finish(self) -> list[Part]:
        return [] if self._passed else [self._kind("?")]


class Calls:
    """Every digit is a call of a tool by that name; other text stays."""

    shown_special_tokens: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._count = 0

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for character in text:
            if character.isdigit():
                parts.append(ToolCallPart(self._count, "{}", f"id{self._count}", character))
                self._count += 1
            else:
                parts.append(TextPart(character))
        return parts

    def finish(self) -> list[Part]:
        return []


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text))


class Chain:
    """Two parsers: the second one reads the text that the first one leaves."""

    shown_special_tokens: frozenset[str] = frozenset()

    def __init__(self, first: Any, second: Any) -> None:
        self._first = first
        self._second = second

    def push(self, text: str) -> list[Part]:
        return self._on(self._first.push(text))

    def finish(self) -> list[Part]:
        return [*self._on(self._first.finish()), *self._second.finish()]

    def _on(self, parts: list[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            found += self._second.push(part.text) if isinstance(part, TextPart) else [part]
        return found


def made(parser: Any = None, *, stop: Sequence[str] = (), **options: Any) -> Output:
    sampling = SamplingParams(stop=tuple(stop), max_tokens=100)
    return Output(TextStream(TOKENIZER, sampling), parser, **options)


def logprobs_of(token_ids: Sequence[int]) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(token_id, -1.0, 1, (), ()) for token_id in token_ids)


def run(output: Output, *messages: Tokens) -> list[Delta]:
    return [delta for message in messages if (delta := output.advance(message)) is not None]


def test_plain_text_is_one_part() -> None:
    output = made()
    deltas = run(output, Tokens("r", ids("hello")), Tokens("r", (), "length"))
    assert deltas == [Delta((TextPart("hello"),)), Delta((), "length")]
    assert (output.finish_reason, output.num_tokens) == ("length", len(ids("hello")))


def test_tokens_that_show_nothing_make_no_delta() -> None:
    first, *others = TOKENIZER.encode("日")
    output = made()
    assert output.advance(Tokens("r", (first,))) is None
    assert run(output, Tokens("r", tuple(others)))[-1].parts == (TextPart("日"),)


def test_a_stop_string_ends_the_output_and_is_named() -> None:
    output = made(stop=["END"])
    deltas = run(output, Tokens("r", ids("one END two")))
    assert deltas == [Delta((TextPart("one "),), "stop", "END")]


def test_only_a_stop_token_that_was_asked_for_is_named() -> None:
    for asked, reason in (((5,), 5), ((), None)):
        output = made(stop_token_ids=asked)
        (delta,) = run(output, Tokens("r", (5,), "stop", stop_token_id=5))
        assert (delta.finish_reason, delta.stop_reason) == ("stop", reason)


@pytest.mark.parametrize("at_once", [True, False])
def test_text_becomes_reasoning_and_calls(at_once: bool) -> None:
    text = ids("why 1 | so 2")
    messages = [Tokens("r", text, "stop")] if at_once else [Tokens("r", (i,)) for i in text]
    output = made(Chain(Split("|", ReasoningPart), Calls()))
    deltas = run(output, *messages) + ([] if at_once else run(output, Tokens("r", (), "stop")))
    parts = joined([part for delta in deltas for part in delta.parts])
    assert parts == [
        ReasoningPart("why 1 "), TextPart(" so "), ToolCallPart(0, "{}", "id0", "2"),
    ]  # fmt: skip
    assert output.finish_reason == "tool_calls"
    assert output.num_reasoning_tokens == len(ids("why 1 "))


def test_a_parser_has_the_last_word() -> None:
    (delta,) = run(made(Split("|", ReasoningPart)), Tokens("r", ids("a"), "length"))
    assert list(delta.parts) == [ReasoningPart("a?")]


def test_a_stop_string_ends_the_parser_too() -> None:
    output = made(Split("|", ReasoningPart), stop=["END"])
    (delta,) = run(output, Tokens("r", ids("a END b")))
    assert list(delta.parts) == [ReasoningPart("a ?")]
    assert delta.finish_reason == "stop"


def test_calls_that_were_cut_off_say_length() -> None:
    output = made(Calls())
    assert run(output, Tokens("r", ids("1"), "length"))[-1].finish_reason == "length"


def test_logprobs_come_with_the_text_of_their_tokens() -> None:
    first, *others = TOKENIZER.encode("日")
    output = made(keep_token_ids=True)
    hidden = run(output, Tokens("r", (first,), logprobs=logprobs_of([first])))
    shown = run(output, Tokens("r", tuple(others), logprobs=logprobs_of(others)))
    assert [one.token_id for delta in hidden + shown for one in delta.logprobs] == [first, *others]
    assert shown[-1].parts == (TextPart("日"),)


def test_tokens_after_a_stop_string_have_no_logprobs() -> None:
    tokens = ids("one END two")
    output = made(stop=["END"], keep_token_ids=True)
    (delta,) = run(output, Tokens("r", tokens, logprobs=logprobs_of(tokens)))
    assert delta.token_ids == tokens[: output.num_tokens]
    assert [one.token_id for one in delta.logprobs] == list(delta.token_ids)
    assert 0 < output.num_tokens < len(tokens)


def test_the_raw_text_is_kept_on_request() -> None:
    output = made(Split("|", ReasoningPart), keep_text=True)
    run(output, Tokens("r", ids("a|b"), "stop"))
    assert output.raw_text == "a|b"
    assert made().raw_text == ""


def test_pieces_of_calls_are_put_together() -> None:
    parts: list[Part] = [
        TextPart("a"), ToolCallPart(0, "{", "id0", "f"), ToolCallPart(0, "}"),
        ToolCallPart(1, "", "id1", "g"), ToolCallPart(1, "[]"),
    ]  # fmt: skip
    assert tool_calls(parts) == [ToolCall("id0", "f", "{}"), ToolCall("id1", "g", "[]")]
    assert joined(parts) == [
        TextPart("a"), ToolCallPart(0, "{}", "id0", "f"), ToolCallPart(1, "[]", "id1", "g"),
    ]  # fmt: skip
