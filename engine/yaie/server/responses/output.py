"""The output items of the responses API (reasoning, message, function call) and their events.

A whole answer is made in the same way; its events are not sent.
"""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from yaie.server.answers.items import Event, Item
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCallPart


class OutputItem(Item):
    """An item that grows. Subclasses define its form and its events."""

    prefix = ""

    def __init__(self, output_index: int) -> None:
        super().__init__()
        self.id = f"{self.prefix}_{uuid.uuid4().hex}"
        self.output_index = output_index

    def opening(self) -> list[Event]:
        return [self._event("response.output_item.added", item=self.wire("in_progress"))]

    def closing(self, status: str) -> list[Event]:
        return [self._event("response.output_item.done", item=self.wire(status))]

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "output_index": self.output_index, **fields}


class ContentItem(OutputItem):
    """An item with one content part."""

    part_type = ""
    delta_event = ""
    extra: Mapping[str, Any] = MappingProxyType({})

    def opening(self) -> list[Event]:
        added = self._content_event("response.content_part.added", part=self._part(""))
        # The item itself begins empty: its content comes with the part.
        (opened,) = super().opening()
        return [opened | {"item": opened["item"] | {"content": []}}, added]

    def growth(self, text: str) -> Event:
        return self._content_event(f"{self.delta_event}.delta", delta=text, **self.extra)

    def closing(self, status: str) -> list[Event]:
        return [
            self._content_event(f"{self.delta_event}.done", text=self.text, **self.extra),
            self._content_event("response.content_part.done", part=self._part(self.text)),
            *super().closing(status),
        ]

    def _content_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self.id, content_index=0, **fields)

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": self.part_type, "text": text}


class MessageItem(ContentItem):
    """A message: the text of the answer."""

    prefix = "msg"
    part_type = "output_text"
    delta_event = "response.output_text"
    extra = MappingProxyType({"logprobs": ()})

    def takes(self, part: Part) -> bool:
        return isinstance(part, TextPart)

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [self._part(self.text)],
        }

    def _part(self, text: str) -> dict[str, Any]:
        return super()._part(text) | {"annotations": [], "logprobs": []}


class ReasoningItem(ContentItem):
    """The model's reasoning."""

    prefix = "rs"
    part_type = "reasoning_text"
    delta_event = "response.reasoning_text"

    def takes(self, part: Part) -> bool:
        return isinstance(part, ReasoningPart)

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": [self._part(self.text)],
            "status": status,
        }


class CallItem(OutputItem):
    """A function call."""

    prefix = "fc"

    def __init__(self, output_index: int, part: ToolCallPart) -> None:
        super().__init__(output_index)
        self._index = part.index
        self._call_id = part.call_id or f"call_{uuid.uuid4().hex}"
        self._name = part.name or ""

    def takes(self, part: Part) -> bool:
        return isinstance(part, ToolCallPart) and part.index == self._index

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self.text,
            "status": status,
        }

    def growth(self, text: str) -> Event:
        event = "response.function_call_arguments.delta"
        return self._event(event, item_id=self.id, delta=text)

    def closing(self, status: str) -> list[Event]:
        done = self._event(
            "response.function_call_arguments.done",
            item_id=self.id,
            name=self._name,
            arguments=self.text,
        )
        return [done, *super().closing(status)]


def item_for(part: Part, output_index: int) -> OutputItem:
    """Make the item that begins with this part."""
    if isinstance(part, ToolCallPart):
        return CallItem(output_index, part)
    if isinstance(part, ReasoningPart):
        return ReasoningItem(output_index)
    return MessageItem(output_index)
