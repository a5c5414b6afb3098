"""Converts a request of Anthropic's messages API to a chat request: blocks become messages. Pure.

Tool results are blocks of the user's turn there. Here they are messages of their own, before its
text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from yaie.server.request import error_fields
from yaie_api.errors import InvalidRequestError
from yaie_api.http.anthropic import (
    AnthropicTool,
    AnthropicToolChoice,
    Content,
    CountTokensRequest,
    MessagesRequest,
    Turn,
)
from yaie_api.http.openai import ChatCompletionRequest
from yaie_api.http.wire import parse

_SENT: Final = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "tool_choice.function": "tool_choice",
}
"""Path in the chat request → path in the request that it was converted from."""
_SAMPLING: Final = ("temperature", "top_p", "top_k", "max_tokens", "cache_salt", "priority")
_THINKING: Final = ("thinking", "redacted_thinking")
RECORDS: Final = frozenset({
    "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_use",
    "mcp_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result",
})  # fmt: skip
"""Blocks about tools that another server ran. What came of them is in the assistant's words."""
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def to_chat(body: CountTokensRequest) -> ChatCompletionRequest:
    """Convert a request to a chat request.

    Raises:
        InvalidRequestError: a field is wrong; `param` names it as the client did.

    """
    messages = _conversation(body)
    fields: dict[str, Any] = {"model": body.model, "messages": messages}
    if messages and _goes_on(messages[-1]):
        fields["continue_final_message"] = True
    if isinstance(body, MessagesRequest):
        fields |= {name: getattr(body, name) for name in _SAMPLING}
        fields |= {"stop": body.stop_sequences or None, "stream": body.stream}
    offered = [tool for _, tool in _offered(body)]
    if offered:
        fields["tools"] = [_tool(tool) for tool in offered]
    if offered or _demands(body.tool_choice):
        fields |= _tool_choice(body.tool_choice)
    fields["chat_template_kwargs"] = _variables(body)
    if body.output_config is not None:
        fields |= _output(body)
    try:
        return parse(ChatCompletionRequest, fields)
    except InvalidRequestError as error:
        raise renamed(error, body) from None


def left_out(body: CountTokensRequest) -> list[str]:
    """Say what of the request has no effect."""
    tools = dict.fromkeys(tool.type for tool in body.tools or () if tool.type != "custom")
    kinds = dict.fromkeys(
        str(block.get("type"))
        for turn in body.messages
        if not isinstance(turn.content, str)
        for block in turn.content
        if block.get("type") in RECORDS
    )
    found = [f"tools of type {kind}" for kind in tools]
    return [*found, *(f"blocks of type {kind}" for kind in kinds), *body.unknown_fields]


def renamed(error: InvalidRequestError, body: CountTokensRequest) -> InvalidRequestError:
    """Rename an error's fields to this API's."""
    places = enumerate(place for place, _ in _offered(body))
    tools = {f"tools.{n}.function": f"tools.{place}" for n, place in places}
    schemas = {f"{path}.parameters": f"{name}.input_schema" for path, name in tools.items()}
    return error_fields.renamed(error, _SENT | tools | schemas)


def _offered(body: CountTokensRequest) -> list[tuple[int, AnthropicTool]]:
    """The tools that the model is offered, with their places in the request."""
    return [(n, tool) for n, tool in enumerate(body.tools or ()) if tool.type == "custom"]


def _variables(body: CountTokensRequest) -> dict[str, Any] | None:
    """Variables of the chat template. The client's own go before those of `thinking`."""
    if body.thinking is None:
        return body.chat_template_kwargs
    thinks = body.thinking.type != "disabled"
    return {"enable_thinking": thinks, "thinking": thinks} | (body.chat_template_kwargs or {})


def _goes_on(last: Mapping[str, Any]) -> bool:
    """Whether the answer continues the last turn: it is the assistant's, and has text."""
    return last["role"] == "assistant" and bool(last["content"]) and "tool_calls" not in last


def _conversation(body: CountTokensRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if body.system:
        found.append({"role": "system", "content": _text_of(body.system)})
    for turn in body.messages:
        found += _turns(turn)
    return found


def _turns(turn: Turn) -> Iterable[dict[str, Any]]:
    if isinstance(turn.content, str):
        return [{"role": turn.role, "content": turn.content}]
    if turn.role == "assistant":
        return [_assistant(turn.content)]
    blocks = [block for block in turn.content if block.get("type") not in RECORDS]
    results = [_result(block) for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    text = [{"role": turn.role, "content": _text_of(others)}] if others else []
    return [*results, *text]


def _assistant(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = {"tool_use", *_THINKING, *RECORDS}
    found: dict[str, Any] = {"role": "assistant"}
    found["content"] = _text_of([block for block in blocks if block.get("type") not in kinds])
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    thoughts = [str(b.get("thinking", "")) for b in blocks if b.get("type") == "thinking"]
    if calls:
        found["tool_calls"] = calls
    if thoughts:
        found["reasoning_content"] = "\n".join(thoughts)
    return found


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("name") is None:
        raise InvalidRequestError("a tool_use block needs its name.", param="messages")
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block["name"], "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = _text_of(block.get("content") or "")
    if block.get("is_error"):
        content = f"Error: {content}"
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}


def _text_of(content: Content | Any) -> str:
    """Return the text of a content that must be only text.

    Raises:
        InvalidRequestError: a block is not text.

    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise InvalidRequestError("content must be a text or a list of blocks.", param="messages")
    return "\n".join(_text(block) for block in content)


def _text(block: Mapping[str, Any]) -> str:
    if block.get("type") == "tool_reference":  # what a search for tools has found: it is offered
        return f"The tool {block.get('tool_name')} is available."
    if block.get("type") != "text":
        raise InvalidRequestError(
            f"This server is text-only and takes no blocks of type {str(block.get('type'))[:64]!r} "
            "here.",
            param="messages",
        )
    text = block.get("text")
    if not isinstance(text, str):
        raise InvalidRequestError("a text block needs its text.", param="messages")
    return text


def _tool(tool: AnthropicTool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function}


def _tool_choice(choice: AnthropicToolChoice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    parallel = {"parallel_tool_calls": not choice.disable_parallel_tool_use}
    if choice.type != "tool":
        return parallel | {"tool_choice": _CHOICES[choice.type]}
    return parallel | {"tool_choice": {"type": "function", "function": {"name": choice.name}}}


def marks_cache(body: CountTokensRequest) -> bool:
    """Whether the request has a mark of what to cache, anywhere."""
    lists = [body.system, *(turn.content for turn in body.messages)]
    blocks = [block for content in lists if isinstance(content, list) for block in content]
    tools = [tool.model_extra or {} for tool in body.tools or ()]
    return body.cache_control is not None or any(
        "cache_control" in one for one in [*blocks, *tools]
    )


def _demands(choice: AnthropicToolChoice | None) -> bool:
    """Whether the answer must have a tool call."""
    return choice is not None and choice.type in ("any", "tool")


def _output(body: CountTokensRequest) -> dict[str, Any]:
    config = body.output_config
    if config is None:
        return {}
    found: dict[str, Any] = {"reasoning_effort": config.effort}
    if config.format is not None:
        schema = {"name": "output", "schema": config.format.json_schema}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return found
