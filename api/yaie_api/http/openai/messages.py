"""The messages of a conversation, and their form for chat templates."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.wire import MAX_DEPTH, Wire, depth

MAX_MESSAGES: Final = 2048
MAX_PARTS: Final = 2048
MAX_CALLS: Final = 128

TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
"""Types of parts that contain text, in OpenAI's chat and responses APIs."""


class ContentPart(Wire):
    """A part of a message's content. Only text: this server fetches and decodes no media."""

    type: Annotated[str, Field(max_length=64)]
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        known = self.type in TEXT_PARTS or self.type == "refusal"
        if not known:
            raise InvalidRequestError(
                "a message has a part that is not text: this server is text-only and takes no "
                "images, audio, video or files.",
                param="messages",
                code="unsupported_content",
            )
        if self.value is None:
            raise InvalidRequestError("a text part needs its text.", param="messages")
        return self

    @property
    def value(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text


class CalledFunction(Wire):
    """The function of a tool call. `arguments` is JSON text as the model wrote it."""

    name: Annotated[str, Field(max_length=256)]
    arguments: str = ""


class MessageToolCall(Wire):
    """A tool call that the assistant made in an earlier turn."""

    id: Annotated[str, Field(max_length=256)] | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        """The call in the form that templates read: with decoded arguments if they are JSON."""
        function = {"name": self.function.name, "arguments": _values(self.function.arguments)}
        call: dict[str, Any] = {"type": "function", "function": function}
        return call if self.id is None else {"id": self.id} | call


_NOT_HERE: Final = {"function_call": "use tool_calls", "audio": "send its words as content"}


class Message(Wire):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        str | Annotated[list[ContentPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None
    ) = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: (
        Annotated[list[MessageToolCall], Field(max_length=MAX_CALLS, fail_fast=True)] | None
    ) = None
    tool_call_id: Annotated[str, Field(max_length=256)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.content is None and self.role not in ("assistant", "tool"):
            raise InvalidRequestError(
                f"a message of role {self.role} needs content.", param="messages"
            )
        if self.tool_calls and self.role != "assistant":
            raise InvalidRequestError(
                "only messages of role assistant have tool_calls.", param="messages"
            )
        for name, instead in _NOT_HERE.items():
            if (self.model_extra or {}).get(name):
                raise InvalidRequestError(
                    f"{name} in messages is not supported by this server; {instead}.",
                    param="messages",
                    code="unsupported_parameter",
                )
        return self

    @property
    def text(self) -> str:
        """The content, or the refusal, as one string; parts are joined by line breaks."""
        if isinstance(self.content, list):
            return "\n".join(part.value or "" for part in self.content)
        return self.content or self.refusal or ""

    @property
    def num_characters(self) -> int:
        """Approximate size in characters."""
        calls = self.tool_calls or ()
        thoughts = self.reasoning_content or self.reasoning or ""
        return len(self.text) + len(thoughts) + sum(len(c.function.arguments) for c in calls)

    def for_template(self) -> dict[str, Any]:
        """The message in the form that templates read; role `developer` becomes `system`."""
        role = "system" if self.role == "developer" else self.role
        thoughts = self.reasoning_content or self.reasoning
        found: dict[str, Any] = {"role": role, "content": self.text}
        optional = {
            "name": self.name,
            "tool_calls": [call.for_template() for call in self.tool_calls or ()] or None,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": thoughts,
        }
        return found | {name: value for name, value in optional.items() if value is not None}


Messages = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]


def conversation(messages: Iterable[Message] | None) -> list[dict[str, Any]]:
    """The messages in the form that chat templates read."""
    return [message.for_template() for message in messages or ()]


def _values(arguments: str) -> Any:
    """The decoded arguments; text that is not valid JSON (or nested too deeply) stays text."""
    if not arguments.strip():
        return {}
    try:
        values = json.loads(arguments, parse_constant=str)
    except (ValueError, RecursionError):
        return arguments
    return values if depth(values, MAX_DEPTH) < MAX_DEPTH else arguments
