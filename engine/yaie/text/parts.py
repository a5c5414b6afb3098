"""What a model's answer is made of, once tool calls and reasoning are told apart from its text.

Parsers (`yaie.text.tools`, `yaie.text.reasoning`) make parts; chat completions, responses and
messages each write them down in their own way.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

import msgspec
from msgspec.structs import replace


class TextPart(msgspec.Struct, frozen=True, gc=False):
    """Text of the answer itself."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """Text of the model's reasoning before its answer."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True, gc=False):
    """A piece of tool call `index`. The first piece has `call_id` and `name`, and may have no
    arguments yet; the pieces' `arguments` joined are JSON.
    """

    index: int
    arguments: str
    call_id: str | None = None
    name: str | None = None


Part = TextPart | ReasoningPart | ToolCallPart


class OutputParser(Protocol):
    """Reads one output's text as it comes. Linear in the text, whatever the chunks."""

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        """Special tokens that its format is written with: the detokenizer must not drop them."""

    def push(self, text: str) -> list[Part]:
        """The parts that this text makes certain."""

    def finish(self) -> list[Part]:
        """What was held back: the output is over."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A whole tool call. `arguments` is JSON."""

    call_id: str
    name: str
    arguments: str


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same parts with neighbours of one kind (and one tool call) put together."""
    return [_together(list(run)) for _, run in groupby(parts, key=_kind)]


def tool_calls(parts: Iterable[Part]) -> list[ToolCall]:
    """The calls among the parts of a whole output, in their order."""
    pieces: dict[int, list[ToolCallPart]] = {}
    for part in parts:
        if isinstance(part, ToolCallPart):
            pieces.setdefault(part.index, []).append(part)
    return [
        ToolCall(
            call_id=some[0].call_id or "",
            name=some[0].name or "",
            arguments="".join(piece.arguments for piece in some),
        )
        for _, some in sorted(pieces.items())
    ]


def _kind(part: Part) -> object:
    return part.index if isinstance(part, ToolCallPart) else type(part)


def _together(run: Sequence[Part]) -> Part:
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, ToolCallPart):
        pieces = (part.arguments for part in run if isinstance(part, ToolCallPart))
        return replace(first, arguments="".join(pieces))
    texts = (part.text for part in run if not isinstance(part, ToolCallPart))
    return replace(first, text="".join(texts))
