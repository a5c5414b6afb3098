"""Parses an output that can only be calls, because the request forces one."""

from yaie.text.parts import OutputParser, Part, TextPart


class OnlyCalls:
    """Leaves the text parts of another parser out.

    Blanks between calls are no text of the answer, and neither is the beginning of a tag that the
    output's end cuts off.
    """

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        return self._parser.shown_special_tokens

    def push(self, text: str) -> list[Part]:
        return _without_text(self._parser.push(text))

    def finish(self) -> list[Part]:
        return _without_text(self._parser.finish())


def _without_text(parts: list[Part]) -> list[Part]:
    return [part for part in parts if not isinstance(part, TextPart)]
