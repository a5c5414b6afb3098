"""The parts of an answer as items that grow one after the other.

OpenAI's responses API and Anthropic's messages API both return a list of items (reasoning, text, a
tool call), and stream events about their growth. They differ in the form of items and events.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from yaie.server.answers.chunks import encode_json, encode_text, json_bytes
from yaie.server.answers.output import Delta
from yaie.server.answers.response_body import ResponseBody
from yaie.text.parts import Part, TextPart, ToolCallPart

Event = dict[str, Any]
EVENT_END: Final = b"}\n\n"
_MARK: Final = "\0text\0"
"""A placeholder for the text: what is before and after it in an event are its constant bytes."""


class Item(ABC):
    """An item that begins with a part and grows with further ones."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(self.pieces)

    @abstractmethod
    def takes(self, part: Part) -> bool:
        """Whether the part belongs to this item."""

    @abstractmethod
    def opening(self) -> list[Event]:
        """Return the events of its beginning."""

    @abstractmethod
    def growth(self, text: str) -> Event:
        """Return the event for more text (or arguments)."""

    def push(self, text: str) -> list[Event]:
        """Add text (or arguments), and return its events."""
        if not text:
            return []
        self.pieces.append(text)
        return [self.growth(text)]

    @abstractmethod
    def closing(self, status: str) -> list[Event]:
        """Return the events of its end."""

    @abstractmethod
    def wire(self, status: str) -> dict[str, Any]:
        """Return the item as the API writes it."""


class Around(NamedTuple):
    """The constant bytes of an item's growth events, which are nearly all events of a stream."""

    before: bytes
    after: bytes


class Items:
    """The items of one answer, in order. One item is open at a time; a part that does not belong to
    it closes it and opens the next. `make`: makes the item that begins with a part, at an index.
    """

    def __init__(self, make: Callable[[Part, int], Item]) -> None:
        self._make = make
        self._count = 0
        self._open: Item | None = None
        self._around: Around | None = None
        self._done: list[dict[str, Any]] = []

    @property
    def output(self) -> list[dict[str, Any]]:
        """The complete items."""
        return list(self._done)

    def push(self, parts: Sequence[Part]) -> Iterator[Event]:
        """Add parts, and return their events."""
        for part in parts:
            if self._open is None or not self._open.takes(part):
                yield from self._close("completed")
                yield from self._begin(part)
            if self._open is not None:
                text = part.arguments if isinstance(part, ToolCallPart) else part.text
                yield from self._open.push(text)

    def grow(self, text: str) -> "Around | None":
        """Add text to the open item, and return the bytes around it in its event. None: nothing was
        added, because the text begins another item; use `push`.
        """
        item = self._open
        if item is None or not text or not item.takes(TextPart(text)):
            return None
        item.pieces.append(text)
        if self._around is None:
            before, after = encode_event(item.growth(_MARK)).split(json_bytes(_MARK))
            self._around = Around(before, after)
        return self._around

    def finish(self, status: str) -> Iterator[Event]:
        """Close the last item, and return its events. An empty answer gets one empty text."""
        if not self._count:
            yield from self._begin(TextPart(""))
        yield from self._close(status)

    def _begin(self, part: Part) -> list[Event]:
        self._open, self._around = self._make(part, self._count), None
        self._count += 1
        return self._open.opening()

    def _close(self, status: str) -> list[Event]:
        item, self._open, self._around = self._open, None, None
        if item is None:
            return []
        self._done.append(item.wire(status))
        return item.closing(status)


class ItemStream:
    """A sink that writes the events of an answer's items. `events`: returns those of a delta."""

    def __init__(
        self, items: Items, events: Callable[[Delta], Iterable[Event]], out: ResponseBody
    ) -> None:
        self._items = items
        self._events = events
        self._out = out

    def tell(self, event: Event) -> None:
        """Write one event."""
        self._out.write(encode_event(event))

    def text(self, index: int, text: str) -> None:
        around = self._items.grow(text)
        if around is None:
            self.delta(index, Delta((TextPart(text),)))
        else:
            end = self.end_of_growth(around.after)
            self._out.write(b"".join((around.before, encode_text(text), end)))

    def delta(self, index: int, delta: Delta) -> None:
        del index
        for event in self._events(delta):
            self.tell(event)

    def end_of_growth(self, after: bytes) -> bytes:
        """Return the bytes after the text of a growth event. `after`: those of `Around`."""
        return after


def encode_event(event: Event) -> bytes:
    """Encode a named server-sent event."""
    return b"".join((b"event: ", event["type"].encode(), b"\ndata: ", encode_json(event), b"\n\n"))
