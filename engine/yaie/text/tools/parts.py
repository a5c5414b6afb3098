"""Collects the parts that a parser finds in one chunk of text."""

import secrets
import string
from collections.abc import Callable

from yaie.text.parts import Part, TextPart, ToolCallPart

NewCallId = Callable[[], str]
_ALPHANUMERIC = string.ascii_letters + string.digits


def call_id() -> str:
    """A random call id in OpenAI's form."""
    return f"call_{secrets.token_hex(12)}"


def short_call_id() -> str:
    """A random call id in the form that Mistral's templates require: nine letters or digits."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


class PartList:
    """A list of parts. Adjacent pieces of text become one part; calls are numbered in order.

    `ends_in_call`: whether there is a call and no text after it.
    """

    def __init__(self, new_call_id: NewCallId) -> None:
        self._new_call_id = new_call_id
        self._text: list[str] = []
        self._parts: list[Part] = []
        self._n_calls = 0
        self.ends_in_call = False

    def text(self, text: str) -> None:
        """Add text of the answer."""
        if text:
            self._text.append(text)
            self.ends_in_call = False

    def begin_call(self, name: str, arguments: str) -> None:
        """Add the first piece of a call."""
        self._flush()
        self._parts.append(ToolCallPart(self._n_calls, arguments, self._new_call_id(), name))
        self._n_calls += 1
        self.ends_in_call = True

    def arguments(self, arguments: str) -> None:
        """Add a further piece of the last call."""
        if arguments:
            self._flush()
            self._parts.append(ToolCallPart(self._n_calls - 1, arguments))

    def take(self) -> list[Part]:
        """The parts added since the last `take`."""
        self._flush()
        parts, self._parts = self._parts, []
        return parts

    def _flush(self) -> None:
        if self._text:
            self._parts.append(TextPart("".join(self._text)))
            self._text.clear()
