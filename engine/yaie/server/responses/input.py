"""Converts a request of the responses API to a chat request: items become messages. Pure.

Reasoning, text and tool calls of one assistant turn are separate items there and one message here.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from yaie.server.request import error_fields
from yaie.server.responses import reasoning_token
from yaie.server.responses.tool_choice import Choice, read_choice
from yaie.server.responses.tools import NO_TOOLS, Toolbox, seen_name
from yaie.text.tools.custom_input import arguments_of
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest
from yaie_api.http.openai.messages import TEXT_PARTS
from yaie_api.http.responses import LOGPROBS, InputTokensRequest, ResponsesRequest
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
_COPIED: Final = ("model", "parallel_tool_calls", "chat_template_kwargs")
_SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed", "min_tokens", "stop", "stop_token_ids", "ignore_eos",
    "skip_special_tokens", "include_stop_str_in_output", "logit_bias", "bad_words",
    "allowed_token_ids", "cache_salt", "priority", "stream",
)  # fmt: skip
RECORDS: Final = frozenset({
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
    "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response",
    "tool_search_call", "tool_search_output",
})  # fmt: skip
"""Items about tools that another server ran. What came of them is in the assistant's words."""
_SHELLS: Final = {
    "local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation",
}  # fmt: skip
"""Calls of tools that a client runs, which here are functions of that name → their arguments."""
_CALLS: Final = ("function_call", "custom_tool_call", *_SHELLS)
_OUTPUTS: Final = tuple(f"{kind}_output" for kind in _CALLS)


def input_items(body: InputTokensRequest) -> list[dict[str, Any]]:
    """Return the request's own input as items."""
    if isinstance(body.input, str):
        text = {"type": "input_text", "text": body.input}
        return [{"type": "message", "role": "user", "content": [text]}]
    return body.input


def to_chat(
    body: InputTokensRequest,
    items: Iterable[Item],
    tools: Toolbox = NO_TOOLS,
    choice: Choice | None = None,
) -> ChatCompletionRequest:
    """Convert a request to a chat request.

    Args:
        body: the request.
        items: the conversation so far, which ends with the request's own input.
        tools: the request's tools.
        choice: which of them may be called; None: what the request says.

    Raises:
        InvalidRequestError: a field is wrong; `param` names it as the client did.

    """
    items = list(items)
    found, places = turns(items, first=len(input_items(body)) - len(items))
    messages, leading = _with_instructions(body.instructions, found)
    fields: dict[str, Any] = {name: getattr(body, name) for name in _COPIED}
    fields |= {
        "messages": messages,
        "response_format": _response_format(body),
        "reasoning_effort": body.reasoning and body.reasoning.effort,
    }
    if isinstance(body, ResponsesRequest):
        fields |= _generating(body)
    if tools.functions:
        fields["tools"] = list(tools.functions)
    chosen = choice or read_choice(body.tool_choice, tools)
    if tools.functions or chosen.chat not in ("auto", "none"):
        fields["tool_choice"] = chosen.chat
    try:
        return parse(ChatCompletionRequest, fields)
    except InvalidRequestError as error:
        shift = len(messages) - len(found)
        sent = {
            f"messages.{n + shift}{rest}": path
            for (n, rest), path in places.items()
            if n >= leading
        }
        raise renamed(error, sent | tools.paths) from None


def _generating(body: ResponsesRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAMPLING}
    fields["max_completion_tokens"] = body.max_output_tokens
    if body.includes(LOGPROBS):
        fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return fields


def renamed(
    error: InvalidRequestError, sent: Mapping[str, str] = MappingProxyType({})
) -> InvalidRequestError:
    """Rename an error's fields to this API's. `sent`: further paths, for this request only."""
    return error_fields.renamed(error, {**_SENT, **sent})


def turns(items: Iterable[Item], *, first: int = 0) -> tuple[list[dict[str, Any]], Places]:
    """Convert items to messages. Return them with the paths that they came from.

    `first`: number of the first item in the request's own input; those below 0 are older.

    Raises:
        InvalidRequestError: an item has an unknown type.

    """
    found: list[dict[str, Any]] = []
    places: Places = {}
    for number, item in enumerate(items, start=first):
        kind = "message" if item.get("type") is None else item["type"]
        if not isinstance(kind, str):
            raise _unsupported("items whose type is no text")
        if kind in RECORDS:
            continue
        if kind == "message":
            _add_message(found, item)
        elif kind in _CALLS:
            _assistant(found, "tool_calls").setdefault("tool_calls", []).append(_call(item))
        elif kind in _OUTPUTS:
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
    if kind in _CALLS:
        call = f".tool_calls.{len(turn['tool_calls']) - 1}"
        return {"": "", call: "", f"{call}.function": "", f"{call}.id": ".call_id"}
    if kind in _OUTPUTS:
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
    kind, name, namespace = item["type"], item.get("name"), item.get("namespace")
    arguments = item.get("arguments") or ""
    if kind in _SHELLS:
        name, arguments = kind.removesuffix("_call"), _json(item.get(_SHELLS[kind]))
    elif kind == "custom_tool_call":
        text = item.get("input")
        arguments = arguments_of(text) if isinstance(text, str) else text
    if isinstance(name, str) and isinstance(namespace, str):
        name = seen_name(name, namespace)
    function = {"name": name, "arguments": arguments}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _call_output(item: Item) -> dict[str, Any]:
    output, call_id = item.get("output"), item.get("call_id")
    if item["type"] == "local_shell_call_output":
        call_id = call_id or item.get("id")
    if item["type"] == "shell_call_output":
        output = _json(output)
    return {"role": "tool", "tool_call_id": call_id, "content": output}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _reasoning(item: Item) -> str:
    if not item.get("content") and (told := reasoning_token.read(item.get("encrypted_content"))):
        return told
    parts = item.get("content") or item.get("summary") or ()
    if not isinstance(parts, list | tuple) or not all(isinstance(part, Mapping) for part in parts):
        raise InvalidRequestError("a reasoning item has a list of texts.", param="input")
    return "\n".join(str(part.get("text", "")) for part in parts)


def _with_instructions(
    instructions: str | None, messages: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """Put the instructions and the system messages of the beginning into one: templates expect one.
    Return the messages with it, and how many of the given ones it holds.
    """
    texts = [instructions] if instructions else []
    leading = 0
    for message in messages:
        text = _plain_text(message.get("content"))
        if message.get("role") not in ("system", "developer") or text is None:
            break
        texts.append(text)
        leading += 1
    if not texts:
        return messages, 0
    system = {"role": "system", "content": "\n\n".join(texts)}
    return [system, *messages[leading:]], leading


def _plain_text(content: Any) -> str | None:
    """Return a content's text; None: it is wrong, and the chat request will say why."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or str(part.get("type")) not in TEXT_PARTS:
            return None
        texts.append(text)
    return "\n".join(texts)


def _response_format(body: InputTokensRequest) -> dict[str, Any] | None:
    form = body.text_format
    if form.type == "json_schema":
        inner = {"name": form.name, "schema": form.json_schema, "strict": form.strict}
        return {"type": "json_schema", "json_schema": inner}
    return None if form.type == "text" else {"type": form.type}


def _unsupported(what: str, param: str = "input") -> InvalidRequestError:
    return InvalidRequestError(
        f"This server does not support {what}.", param=param, code="unsupported_parameter"
    )
