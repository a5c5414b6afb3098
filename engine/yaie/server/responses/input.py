"""Converts a request of the responses API to a chat request: items become messages. Pure.

Reasoning, text and tool calls of one assistant turn are separate items there and one message here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from yaie.server.request import error_fields
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest
from yaie_api.http.responses import MAX_TOOLS, ResponsesRequest
from yaie_api.http.wire import parse

Item = Mapping[str, Any]
Places = dict[tuple[int, str], str]
"""(number of a turn, path in it) → path in the request that the client sent."""
_SENT: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "reasoning_effort": "reasoning.effort",
    "tool_choice.function": "tool_choice",
}
"""Path in the chat request → path in the request that it was converted from."""
_COPIED: Final = (
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "cache_salt", "priority",
    "parallel_tool_calls", "chat_template_kwargs", "user",
)  # fmt: skip


def input_items(body: ResponsesRequest) -> list[dict[str, Any]]:
    """Return the request's own input as items."""
    if isinstance(body.input, str):
        text = {"type": "input_text", "text": body.input}
        return [{"type": "message", "role": "user", "content": [text]}]
    return body.input


def to_chat(body: ResponsesRequest, items: Iterable[Item]) -> ChatCompletionRequest:
    """Convert a request to a chat request.

    Raises:
        InvalidRequestError: a field is wrong; `param` names it as the client did.

    """
    items = list(items)
    found, places = turns(items, first=len(input_items(body)) - len(items))
    messages = _with_instructions(body.instructions, found)
    fields: dict[str, Any] = {name: getattr(body, name) for name in _COPIED}
    fields |= {
        "messages": messages,
        "max_completion_tokens": body.max_output_tokens,
        "response_format": _response_format(body),
        "reasoning_effort": body.reasoning and body.reasoning.effort,
        "stream": body.stream,
    }
    if body.tools:
        fields["tools"] = [_tool(tool) for tool in body.tools]
    if body.tools or body.tool_choice not in ("auto", "none"):
        fields["tool_choice"] = _tool_choice(body.tool_choice)
    try:
        return parse(ChatCompletionRequest, fields)
    except InvalidRequestError as error:
        shift = len(messages) - len(found)
        sent = {f"messages.{n + shift}{rest}": path for (n, rest), path in places.items()}
        raise renamed(error, sent) from None


def renamed(
    error: InvalidRequestError, sent: Mapping[str, str] = MappingProxyType({})
) -> InvalidRequestError:
    """Rename an error's fields to this API's. `sent`: further paths, for this request only."""
    tools = {f"tools.{n}.function": f"tools.{n}" for n in range(MAX_TOOLS)}
    return error_fields.renamed(error, {**_SENT, **tools, **sent})


def turns(items: Iterable[Item], *, first: int = 0) -> tuple[list[dict[str, Any]], Places]:
    """Convert items to messages. Return them with the paths that they came from.

    `first`: number of the first item in the request's own input; those below 0 are older.

    Raises:
        InvalidRequestError: an item has an unknown type.

    """
    found: list[dict[str, Any]] = []
    places: Places = {}
    for number, item in enumerate(items, start=first):
        kind = item.get("type") or "message"
        if kind == "message":
            _add_message(found, item)
        elif kind == "function_call":
            _assistant(found, "tool_calls").setdefault("tool_calls", []).append(_call(item))
        elif kind == "function_call_output":
            found.append(_call_output(item))
        elif kind == "reasoning":
            _assistant(found, "content", "tool_calls")["reasoning_content"] = _reasoning(item)
        else:
            raise _unsupported(f"items of type {str(kind)[:64]!r}")
        path = f"input.{number}" if number >= 0 else "previous_response_id"
        for rest, name in _names(kind, found[-1]).items():
            places.setdefault((len(found) - 1, rest), path + name)
    return [_complete(turn) for turn in found], places


def _names(kind: str, turn: Mapping[str, Any]) -> dict[str, str]:
    """Return what an item has just added to a turn: path in the turn → path in the item."""
    if kind == "function_call":
        call = f".tool_calls.{len(turn['tool_calls']) - 1}"
        return {"": "", call: "", f"{call}.function": "", f"{call}.id": ".call_id"}
    if kind == "function_call_output":
        return {"": "", ".content": ".output", ".tool_call_id": ".call_id"}
    return {"": "", ".content": ".content"} if kind == "message" else {}


def _add_message(found: list[dict[str, Any]], item: Item) -> None:
    if item.get("role") == "assistant":
        _assistant(found, "content", "tool_calls")["content"] = item.get("content")
    else:
        found.append({"role": item.get("role"), "content": item.get("content")})


def _assistant(found: list[dict[str, Any]], *unless: str) -> dict[str, Any]:
    """Return the assistant turn of an item: the last turn, unless it has a field of `unless`."""
    last = found[-1] if found else {}
    goes_on = last.get("role") == "assistant" and not any(name in last for name in unless)
    if unless == ("tool_calls",):
        goes_on = last.get("role") == "assistant"
    if not goes_on:
        found.append({"role": "assistant"})
    return found[-1]


def _complete(turn: dict[str, Any]) -> dict[str, Any]:
    return {"content": ""} | turn if turn.get("role") == "assistant" else turn


def _call(item: Item) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments") or ""}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _call_output(item: Item) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}


def _reasoning(item: Item) -> str:
    parts = item.get("content") or item.get("summary") or ()
    if not isinstance(parts, list | tuple) or not all(isinstance(part, Mapping) for part in parts):
        raise InvalidRequestError("a reasoning item has a list of texts.", param="input")
    return "\n".join(str(part.get("text", "")) for part in parts)


def _with_instructions(
    instructions: str | None, messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Put the instructions first, in the system message if there is one: templates expect one."""
    if not instructions:
        return messages
    first = messages[0] if messages else {}
    if first.get("role") in ("system", "developer") and isinstance(first.get("content"), str):
        joined = f"{instructions}\n\n{first['content']}"
        return [{"role": "system", "content": joined}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


def _response_format(body: ResponsesRequest) -> dict[str, Any] | None:
    form = body.text_format
    if form.type == "json_schema":
        inner = {"name": form.name, "schema": form.json_schema, "strict": form.strict}
        return {"type": "json_schema", "json_schema": inner}
    return None if form.type == "text" else {"type": form.type}


def _tool(tool: Item) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise _unsupported("tools other than functions", "tools")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool.get(name) for name in names}}


def _tool_choice(choice: str | Item) -> Any:
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "function":
        raise _unsupported("a tool_choice other than one function", "tool_choice")
    return {"type": "function", "function": {"name": choice.get("name")}}


def _unsupported(what: str, param: str = "input") -> InvalidRequestError:
    return InvalidRequestError(
        f"This server does not support {what}.", param=param, code="unsupported_parameter"
    )
