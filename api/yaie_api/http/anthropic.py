"""Request types of Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.

`yaie.server.anthropic.input` checks content blocks when it translates them into turns; all other
fields are checked here. Errors have Anthropic's own body (`yaie_api.http.envelopes`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from yaie_api.errors import InvalidRequestError
from yaie_api.http.envelopes import THREAD_REFUSED
from yaie_api.http.openai.chat import TemplateVariables
from yaie_api.http.openai.refused import refuse_forms
from yaie_api.http.wire import Integer, ModelRequest, Wire

MAX_TURNS: Final = 2048
MAX_BLOCKS: Final = 2048
MAX_TOOLS: Final = 128
MAX_EDITS: Final = 16
NOT_HERE: Final = ("mcp_servers", "container", "compaction", "thread", "kv_transfer_params")
"""Fields that this server refuses, because it would have to ignore what they request."""

_Name = Annotated[str, Field(max_length=256)] | None


class Block(TypedDict, total=False):
    """A part of a turn; its other fields depend on its type."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]  # pydantic's way

    type: str
    text: str | None
    id: _Name
    name: _Name
    tool_use_id: _Name


Content = str | Annotated[list[Block], Field(max_length=MAX_BLOCKS, fail_fast=True)]


class Turn(Wire):
    """One turn: text, or blocks of text, tool use, tool results and thinking."""

    role: Literal["user", "assistant", "system"]
    content: Content


class AnthropicTool(Wire):
    """A function that the model may call. A `type` other than custom is a tool that Anthropic runs
    or knows: the model is not offered it.
    """

    type: str = "custom"
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicToolChoice(Wire):
    """How the model chooses among the tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Wire):
    """Whether the model reasons first. The budget is not enforced; max_tokens is."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Integer | None = None


class OutputFormat(Wire):
    """The form of the output."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Wire):
    """`output_config` of a request."""

    format: OutputFormat | None = None
    effort: Annotated[str, Field(max_length=32)] | None = None


class Amount(Wire):
    """A number of tokens, of uses of tools, or of turns with thinking."""

    type: Literal["input_tokens", "tool_uses", "thinking_turns"]
    value: Annotated[Integer, Field(ge=0)]


class AllTurns(Wire):
    """All turns."""

    type: Literal["all"]


class ContextEdit(Wire):
    """What is taken out of the conversation before the model sees it. Which fields it has depends
    on its type.
    """

    type: Literal["clear_thinking_20251015", "clear_tool_uses_20250919"]
    keep: Literal["all"] | AllTurns | Amount | None = None
    trigger: Amount | None = None
    clear_at_least: Amount | None = None
    exclude_tools: Annotated[list[str], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    clear_tool_inputs: (
        bool | Annotated[list[str], Field(max_length=MAX_TOOLS, fail_fast=True)] | None
    ) = None


class ContextManagement(Wire):
    """`context_management` of a request."""

    edits: Annotated[list[ContextEdit], Field(max_length=MAX_EDITS, fail_fast=True)] | None = None


class CountTokensRequest(ModelRequest):
    """POST /v1/messages/count_tokens: the fields of a message that make up its prompt."""

    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_TURNS, fail_fast=True)]
    system: Content | None = None
    tools: Annotated[list[AnthropicTool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    chat_template_kwargs: TemplateVariables | None = None
    cache_control: dict[str, Any] | None = None

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        """Refuse fields that request something which this server does not do.

        Raises:
            InvalidRequestError: there is such a field.

        """
        refuse_forms(given, "output_config.format")
        for name in NOT_HERE:
            if given.get(name):
                raise InvalidRequestError(
                    f"{name} is not supported by this server; leave it out.",
                    param=name,
                    code=THREAD_REFUSED if name == "thread" else None,
                )


class MessagesRequest(CountTokensRequest):
    """POST /v1/messages."""

    max_tokens: Annotated[Integer, Field(ge=1)]
    stop_sequences: Annotated[list[str], Field(max_length=64, fail_fast=True)] | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    cache_salt: str | None = None
    priority: Integer = 0
