"""Describes tools in text, for models whose chat template does not support tools, in the format on
which the Hermes models were trained.

The list of tools goes into the system message, calls of earlier turns into the assistant's text,
and their results into user messages.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from yaie.text.tools import ToolFormat
from yaie_api.errors import InvalidRequestError

HERMES: Final = frozenset({"hermes", "qwen"})
_EXPLANATION: Final = """\
You may call functions to help with the user's request. The functions, one on each line:
<tools>
{tools}
</tools>
To call a function, write its name and arguments as JSON between these tags:
<tool_call>
{{"name": NAME, "arguments": {{}}}}
</tool_call>"""

Message = Mapping[str, Any]


def spelled_out(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: ToolFormat
) -> list[dict[str, Any]]:
    """The conversation with tools, calls and results as text instead of fields.

    Raises:
        InvalidRequestError: the tool format is not a Hermes format, which this text describes.

    """
    if form.name not in HERMES:
        raise InvalidRequestError("The chat template of this model knows no tools.", param="tools")
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    explanation = _EXPLANATION.format(tools=lines)
    first, rest = (messages[0], messages[1:]) if _is_system(messages) else (None, messages)
    content = f"{first['content']}\n\n{explanation}" if first is not None else explanation
    system: dict[str, Any] = {"role": "system", "content": content}
    return [system, *map(_without_tools, rest)]


def _is_system(messages: Sequence[Message]) -> bool:
    return bool(messages[0]["role"] == "system")


def _without_tools(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        content = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": content}
    plain = {name: value for name, value in message.items() if name != "tool_calls"}
    calls = [_call(call["function"]) for call in message.get("tool_calls", ())]
    if calls:
        plain["content"] = "\n".join([*filter(None, [plain["content"]]), *calls])
    return plain


def _call(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
