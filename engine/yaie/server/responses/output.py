"""The output items of the responses API (reasoning, message, calls) and their events.

A whole answer is made in the same way; its events are not sent.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from yaie.server.answers.items import Event, Item
from yaie.server.responses import reasoning_token
from yaie.server.responses.logprobs import TextLogprobs
from yaie.server.responses.tools import OfferedTool
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCallPart
from yaie.text.tools.custom_input import InputReader


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

    def opening(self) -> list[Event]:
        added = self._content_event("response.content_part.added", part=self._part(""))
        # The item itself begins empty: its content comes with the part.
        (opened,) = super().opening()
        return [opened | {"item": opened["item"] | {"content": []}}, added]

    def growth(self, text: str) -> Event:
        return self._content_event(f"{self.delta_event}.delta", delta=text)

    def closing(self, status: str) -> list[Event]:
        return [
            self._content_event(f"{self.delta_event}.done", text=self.text),
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

    def __init__(self, output_index: int, logprobs: TextLogprobs) -> None:
        super().__init__(output_index)
        self._logprobs = logprobs
        self._told: list[dict[str, Any]] = []

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

    def growth(self, text: str) -> Event:
        taken = self._logprobs.take(text)
        self._told += taken
        return super().growth(text) | {"logprobs": taken}

    def closing(self, status: str) -> list[Event]:
        done, *others = super().closing(status)
        return [done | {"logprobs": self._told}, *others]

    def _part(self, text: str) -> dict[str, Any]:
        return super()._part(text) | {"annotations": [], "logprobs": list(self._told)}


class ReasoningItem(ContentItem):
    """The model's reasoning. `encrypted`: whether the client asks for it in that form, too."""

    prefix = "rs"
    part_type = "reasoning_text"
    delta_event = "response.reasoning_text"

    def __init__(self, output_index: int, *, encrypted: bool) -> None:
        super().__init__(output_index)
        self._encrypted = encrypted

    def takes(self, part: Part) -> bool:
        return isinstance(part, ReasoningPart)

    def wire(self, status: str) -> dict[str, Any]:
        found = {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": [self._part(self.text)],
            "status": status,
        }
        if self._encrypted:
            found["encrypted_content"] = reasoning_token.write(self.text)
        return found


class CallItem(OutputItem):
    """A function call. `name` and `namespace` are the client's."""

    prefix = "fc"
    kind = "function_call"
    field = "arguments"
    event = "response.function_call_arguments"

    def __init__(
        self, output_index: int, part: ToolCallPart, name: str, namespace: str | None
    ) -> None:
        super().__init__(output_index)
        self._index = part.index
        self._call_id = part.call_id or f"call_{uuid.uuid4().hex}"
        self._name = {"name": name} | ({} if namespace is None else {"namespace": namespace})

    def takes(self, part: Part) -> bool:
        return isinstance(part, ToolCallPart) and part.index == self._index

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": self.kind,
            "call_id": self._call_id,
            **self._name,
            self.field: self.text,
            "status": status,
        }

    def growth(self, text: str) -> Event:
        return self._event(f"{self.event}.delta", item_id=self.id, delta=text)

    def closing(self, status: str) -> list[Event]:
        told = {**self._name, self.field: self.text}
        done = self._event(f"{self.event}.done", item_id=self.id, **told)
        return [done, *super().closing(status)]


class CustomCallItem(CallItem):
    """A call of a tool whose input is free text."""

    prefix = "ctc"
    kind = "custom_tool_call"
    field = "input"
    event = "response.custom_tool_call_input"

    def __init__(
        self, output_index: int, part: ToolCallPart, name: str, namespace: str | None
    ) -> None:
        super().__init__(output_index, part, name, namespace)
        self._reader = InputReader()

    def push(self, text: str) -> list[Event]:
        return super().push(self._reader.push(text))


class ItemMaker:
    """Makes the item that begins with a part.

    `offered`: the client's tools, by the names that the model sees. `logprobs`: those of the delta
    that is being written. `encrypted`: whether reasoning is told in that form, too.
    """

    def __init__(
        self,
        offered: Mapping[str, OfferedTool],
        logprobs: TextLogprobs,
        *,
        encrypted: bool,
    ) -> None:
        self._offered = offered
        self._logprobs = logprobs
        self._encrypted = encrypted

    def __call__(self, part: Part, output_index: int) -> OutputItem:
        if isinstance(part, ToolCallPart):
            return self._call(part, output_index)
        if isinstance(part, ReasoningPart):
            return ReasoningItem(output_index, encrypted=self._encrypted)
        return MessageItem(output_index, self._logprobs)

    def _call(self, part: ToolCallPart, output_index: int) -> OutputItem:
        name = part.name or ""
        tool = self._offered.get(name)
        if tool is None:
            return CallItem(output_index, part, name, None)
        kind = CustomCallItem if tool.is_custom else CallItem
        return kind(output_index, part, tool.name, tool.namespace)
