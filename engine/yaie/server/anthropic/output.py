"""The content blocks of Anthropic's messages (thinking, text, tool use) and their events."""

import json
import uuid
from abc import abstractmethod
from typing import Any

from yaie.server.answers.items import Event, Item
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCallPart


class Block(Item):
    """A block that grows. Subclasses define its form and its deltas."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    @abstractmethod
    def empty(self) -> dict[str, Any]:
        """Return the block as it begins."""

    @abstractmethod
    def delta(self, text: str) -> dict[str, Any]:
        """Return the delta that adds `text`."""

    def opening(self) -> list[Event]:
        return [self._event("content_block_start", content_block=self.empty())]

    def growth(self, text: str) -> Event:
        return self._event("content_block_delta", delta=self.delta(text))

    def closing(self, status: str) -> list[Event]:
        del status
        return [self._event("content_block_stop")]

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "index": self._index, **fields}


class TextBlock(Block):
    """The text of the answer."""

    def takes(self, part: Part) -> bool:
        return isinstance(part, TextPart)

    def empty(self) -> dict[str, Any]:
        return {"type": "text", "text": ""}

    def wire(self, status: str) -> dict[str, Any]:
        del status
        return {"type": "text", "text": self.text}

    def delta(self, text: str) -> dict[str, Any]:
        return {"type": "text_delta", "text": text}


class ThinkingBlock(Block):
    """The model's reasoning. Only Anthropic can sign it; here the signature is empty."""

    def takes(self, part: Part) -> bool:
        return isinstance(part, ReasoningPart)

    def empty(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def wire(self, status: str) -> dict[str, Any]:
        del status
        return {"type": "thinking", "thinking": self.text, "signature": ""}

    def delta(self, text: str) -> dict[str, Any]:
        return {"type": "thinking_delta", "thinking": text}

    def closing(self, status: str) -> list[Event]:
        signature = {"type": "signature_delta", "signature": ""}
        return [self._event("content_block_delta", delta=signature), *super().closing(status)]


class ToolUseBlock(Block):
    """A function call."""

    def __init__(self, index: int, part: ToolCallPart) -> None:
        super().__init__(index)
        self._call = part.index
        self._head = {
            "type": "tool_use",
            "id": part.call_id or f"toolu_{uuid.uuid4().hex}",
            "name": part.name or "",
        }

    def takes(self, part: Part) -> bool:
        return isinstance(part, ToolCallPart) and part.index == self._call

    def empty(self) -> dict[str, Any]:
        return self._head | {"input": {}}

    def wire(self, status: str) -> dict[str, Any]:
        del status
        return self._head | {"input": _values(self.text)}

    def delta(self, text: str) -> dict[str, Any]:
        return {"type": "input_json_delta", "partial_json": text}


def block_for(part: Part, index: int) -> Block:
    """Make the block that begins with this part."""
    if isinstance(part, ToolCallPart):
        return ToolUseBlock(index, part)
    if isinstance(part, ReasoningPart):
        return ThinkingBlock(index)
    return TextBlock(index)


def _values(arguments: str) -> Any:
    """Parse a call's arguments. If the call was cut off, return no arguments."""
    try:
        return json.loads(arguments or "{}", parse_constant=str)
    except (ValueError, RecursionError):
        return {}
