"""The parts of an answer as items that grow one after the other.

OpenAI's responses and Anthropic's messages both tell an answer as a list of items (reasoning, text,
a call) and a stream as events of their growth. They differ in how an item and its events look.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yaie.server.openai.chunks import encode_json
from yaie.server.parts import Part, TextPart, ToolCallPart

Event = dict[str, Any]


class Item(ABC):
    """One item, from its first part on."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """What has been said so far."""
        return "".join(self.pieces)

    @abstractmethod
    def takes(self, part: Part) -> bool:
        """Whether the part goes on with this item."""

    @abstractmethod
    def opening(self) -> list[Event]:
        """The events of its beginning."""

    @abstractmethod
    def push(self, text: str) -> list[Event]:
        """More text (or arguments), and the events that tell it."""

    @abstractmethod
    def closing(self, status: str) -> list[Event]:
        """The events of its end."""

    @abstractmethod
    def wire(self, status: str) -> dict[str, Any]:
        """The item as it is now."""


class Items:
    """The items of one answer, in order. One is open at a time: a part that it does not take closes
    it and opens the next. `make` makes the item that begins with a part, at a place in the list.
    """

    def __init__(self, make: Callable[[Part, int], Item]) -> None:
        self._make = make
        self._count = 0
        self._open: Item | None = None
        self._done: list[dict[str, Any]] = []

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items that are complete."""
        return list(self._done)

    def push(self, parts: Sequence[Part]) -> Iterator[Event]:
        """The events that these parts cause."""
        for part in parts:
            if self._open is None or not self._open.takes(part):
                yield from self._close("completed")
                yield from self._begin(part)
            if self._open is not None:
                text = part.arguments if isinstance(part, ToolCallPart) else part.text
                yield from self._open.push(text)

    def finish(self, status: str) -> Iterator[Event]:
        """The last events. An answer without anything has one empty text."""
        if not self._count:
            yield from self._begin(TextPart(""))
        yield from self._close(status)

    def _begin(self, part: Part) -> list[Event]:
        self._open = self._make(part, self._count)
        self._count += 1
        return self._open.opening()

    def _close(self, status: str) -> list[Event]:
        item, self._open = self._open, None
        if item is None:
            return []
        self._done.append(item.wire(status))
        return item.closing(status)


def encode_event(event: Event) -> bytes:
    """A named event as server-sent bytes."""
    return b"".join((b"event: ", event["type"].encode(), b"\ndata: ", encode_json(event), b"\n\n"))
