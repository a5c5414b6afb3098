"""What a model's answer is made of, once tool calls and reasoning are told apart from its text.

Parsers (`yaie.server.tools`, `yaie.server.reasoning`) make parts; chat completions, responses and
messages each write them down in their own way.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Text of the model's reasoning before its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
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
