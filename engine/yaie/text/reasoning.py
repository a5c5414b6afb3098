"""Separates a model's reasoning from its answer while it streams.

The opening tag is written by the chat template at the end of the prompt, or by the model, or not at
all if reasoning is off. `ReasoningFormat.opened` decides by the end of the prompt.
"""

from dataclasses import dataclass
from typing import Final

from yaie.core.request import ReasoningBlock
from yaie.text.detokenizer import unfinished
from yaie.text.parts import OutputParser, Part, ReasoningPart, TextPart
from yaie_api.errors import InvalidRequestError

MAX_HELD_BLANKS: Final = 64


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How one model family marks reasoning.

    `always`: its models reason even if neither prompt nor output has the opening tag.
    """

    name: str
    start: str
    end: str
    always: bool = False

    def opened(self, prompt_tail: str) -> bool:
        """Whether the output begins inside the reasoning.

        `prompt_tail`: the prompt's last tokens as text, including special tokens.
        """
        tail = prompt_tail.rstrip()
        return tail.endswith(self.start) or (self.always and not tail.endswith(self.end))

    def parser(self, *, opened: bool) -> OutputParser:
        """A parser of one output."""
        return ReasoningParser(self, opened=opened)

    def block(self, *, opened: bool) -> ReasoningBlock:
        """The free text that a grammar allows before its form begins."""
        return ReasoningBlock(self.start, self.end, opened)


class ReasoningParser:
    """Parses reasoning up to the end tag, then text. Whitespace next to a tag is removed."""

    def __init__(self, form: ReasoningFormat, *, opened: bool) -> None:
        self._form = form
        self._held = ""
        self._state = self._reasoning if opened else self._beginning
        self._at_edge = True  # directly after a tag: skip whitespace
        self._over = False
        self._parts: list[Part] = []

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        return frozenset({self._form.start, self._form.end})

    def push(self, text: str) -> list[Part]:
        self._run(self._held + text)
        parts, self._parts = self._parts, []
        return parts

    def finish(self) -> list[Part]:
        self._over = True
        return self.push("")

    def _run(self, text: str) -> None:
        position, state = 0, None
        while state != self._state:
            state = self._state
            position = state(text, position)
        self._held = text[position:]

    def _beginning(self, text: str, position: int) -> int:
        """The initial state: the output may begin with the opening tag, after whitespace."""
        start, found = self._form.start, _skip(text, position)
        few = found - position <= MAX_HELD_BLANKS
        if few and text.startswith(start, found):
            self._state = self._reasoning
            return found + len(start)
        may_come = few and start.startswith(text[found:])
        if not may_come or self._over:
            self._state = self._answer
            self._at_edge = False
        return position

    def _reasoning(self, text: str, position: int) -> int:
        position = self._skip_edge(text, position)
        end = self._form.end
        found = text.find(end, position)
        if found >= 0:
            kept = _without_blanks(text, position, found)
            self._add(ReasoningPart, text[position:kept])
            self._state, self._at_edge = self._answer, True
            return found + len(end)
        if self._over:
            kept = len(text)
        else:
            kept = _without_blanks(text, position, len(text) - unfinished(text[position:], end))
        self._add(ReasoningPart, text[position:kept])
        return kept

    def _answer(self, text: str, position: int) -> int:
        position = self._skip_edge(text, position)
        self._add(TextPart, text[position:])
        return len(text)

    def _skip_edge(self, text: str, position: int) -> int:
        if self._at_edge:
            position = _skip(text, position)
            self._at_edge = position == len(text)
        return position

    def _add(self, kind: type[ReasoningPart | TextPart], text: str) -> None:
        if text:
            self._parts.append(kind(text))


class Chain:
    """Two parsers in sequence: `first` separates reasoning, `second` parses its text parts."""

    def __init__(self, first: OutputParser, second: OutputParser) -> None:
        self._first = first
        self._second = second

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        return self._first.shown_special_tokens | self._second.shown_special_tokens

    def push(self, text: str) -> list[Part]:
        return self._pass_on(self._first.push(text))

    def finish(self) -> list[Part]:
        return self._pass_on(self._first.finish()) + self._second.finish()

    def _pass_on(self, parts: list[Part]) -> list[Part]:
        passed: list[Part] = []
        for part in parts:
            passed += self._second.push(part.text) if isinstance(part, TextPart) else [part]
        return passed


def chain(first: OutputParser | None, second: OutputParser | None) -> OutputParser | None:
    """One parser made of both; None if both are None."""
    if first is None or second is None:
        return first or second
    return Chain(first, second)


_THINK: Final = ("<think>", "</think>")
_FORMATS: Final = {
    "deepseek_r1": ReasoningFormat("deepseek_r1", *_THINK, always=True),
    "qwen3": ReasoningFormat("qwen3", *_THINK),
    "mistral": ReasoningFormat("mistral", "[THINK]", "[/THINK]"),
}
FORMATS: Final = tuple(_FORMATS)


def format_for(template: str | None, override: str | None = None) -> ReasoningFormat | None:
    """The reasoning format of a model: `override`, or the one in its chat template; None if the
    template has no reasoning.

    Raises:
        InvalidRequestError: there is no format of that name.

    """
    if override is not None:
        if override not in _FORMATS:
            raise InvalidRequestError(
                f"There is no reasoning parser {override!r}; there are {', '.join(FORMATS)}.",
                param="reasoning_parser",
            )
        return _FORMATS[override]
    for name in ("mistral", "qwen3"):
        if template is not None and _FORMATS[name].end in template:
            return _FORMATS[name]
    return None


def _skip(text: str, position: int) -> int:
    """Index of the first character from `position` on that is not whitespace."""
    return len(text) - len(text[position:].lstrip())


def _without_blanks(text: str, start: int, end: int) -> int:
    """The end of text[start:end] without trailing whitespace, of which at most MAX_HELD_BLANKS
    characters are removed.
    """
    return max(start, start + len(text[start:end].rstrip()), end - MAX_HELD_BLANKS)
