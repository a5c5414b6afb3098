"""The parts of a model's answer: text, reasoning and tool calls.

Parsers (`yaie.text.tools`, `yaie.text.reasoning`) produce parts; the chat completions, responses
and messages APIs each serialise them in their own form.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

import msgspec
from msgspec.structs import replace


class TextPart(msgspec.Struct, frozen=True, gc=False):
    """Text of the answer."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """Text of the model's reasoning before its answer."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True, gc=False):
    """A piece of the tool call with number `index`.

    The first piece has `call_id` and `name`, and may have no arguments yet. The `arguments` of all
    pieces together are JSON.
    """

    index: int
    arguments: str
    call_id: str | None = None
    name: str | None = None


Part = TextPart | ReasoningPart | ToolCallPart


class OutputParser(Protocol):
    """Parses one output's text incrementally, in time linear in the text for any chunks."""

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        """Special tokens of the format, which the detokenizer must not remove."""

    def push(self, text: str) -> list[Part]:
        """Add text and return the parts that are now final."""

    def finish(self) -> list[Part]:
        """End the output and return the parts that were held back."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A whole tool call. `arguments` is JSON."""

    call_id: str
    name: str
    arguments: str


def joined(parts: Iterable[Part]) -> list[Part]:
    """The parts, with adjacent parts of the same kind (and the same tool call) merged."""
    return [_together(list(run)) for _, run in groupby(parts, key=_kind)]


def tool_calls(parts: Iterable[Part]) -> list[ToolCall]:
    """The tool calls among the parts of a complete output, in order."""
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
