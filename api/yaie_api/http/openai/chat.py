"""POST /v1/chat/completions."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.generation import GenerationRequest
from yaie_api.http.openai.messages import Messages, conversation
from yaie_api.http.openai.tools import NamedTool, ToolChoice, Tools, check_tools
from yaie_api.http.wire import Integer

MAX_TEMPLATE_VARIABLES: Final = 64
MAX_DOCUMENTS: Final = 256
TemplateVariables = Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)]


class ChatCompletionRequest(GenerationRequest):
    """A conversation to answer."""

    messages: Messages
    max_completion_tokens: Integer | None = None
    logprobs: bool = False
    top_logprobs: Annotated[Integer, Field(ge=-1)] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    documents: Annotated[list[dict[str, Any]], Field(max_length=MAX_DOCUMENTS)] | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    verbosity: Annotated[str, Field(max_length=32)] | None = None
    include_reasoning: bool = True
    return_prompt_text: bool = False
    chat_template_kwargs: TemplateVariables | None = None

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        check_tools(self.tools, self.tool_choice)
        if "tools" in (self.chat_template_kwargs or {}):
            raise InvalidRequestError(
                "chat_template_kwargs must not set tools.", param="chat_template_kwargs"
            )
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs.", param="top_logprobs")
        if self.output_limit is not None and self.output_limit < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, got {self.output_limit}.", param="max_tokens"
            )
        check_turns(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )
        return self

    @property
    def output_limit(self) -> int | None:
        """The output's limit in tokens: max_completion_tokens, else the older max_tokens."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def opens_turn(self) -> bool:
        """Whether the prompt ends with the beginning of the assistant's turn."""
        return opens_turn(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )

    @property
    def tool_mode(self) -> Literal["none", "auto", "required", "named"]:
        """How tools are used; the default with tools is auto, without tools none."""
        if self.tools is None:
            return "none"
        if isinstance(self.tool_choice, NamedTool):
            return "named"
        return self.tool_choice or "auto"

    @property
    def template_variables(self) -> dict[str, Any]:
        """The chat template's variables besides the messages; tools unless tool_mode is none."""
        found: dict[str, Any] = {}
        if self.tools is not None and self.tool_mode != "none":
            found["tools"] = [tool.for_template() for tool in self.tools]
        if self.documents is not None:
            found["documents"] = self.documents
        for name in ("reasoning_effort", "verbosity"):
            if (wish := getattr(self, name)) is not None:
                found[name] = wish
        return found | (self.chat_template_kwargs or {})

    @property
    def num_characters(self) -> int:
        """Approximate size of the prompt, which decides where it is rendered and tokenized."""
        return sum(one.num_characters for one in (*self.messages, *(self.tools or ())))

    @property
    def form_size(self) -> int:
        """As in `GenerationRequest`, plus the tools, whose calls constrain the output too."""
        return super().form_size + sum(tool.num_characters for tool in self.tools or ())

    def conversation(self) -> list[dict[str, Any]]:
        """The messages in the form that chat templates read."""
        return conversation(self.messages)


def check_turns(*, add_generation_prompt: bool | None, continue_final_message: bool) -> None:
    """Check that the two fields do not contradict each other.

    Raises:
        InvalidRequestError: both are true.

    """
    if continue_final_message and add_generation_prompt:
        raise InvalidRequestError(
            "continue_final_message and add_generation_prompt exclude each other.",
            param="continue_final_message",
        )


def opens_turn(*, add_generation_prompt: bool | None, continue_final_message: bool) -> bool:
    """Whether a prompt ends with the beginning of the assistant's turn.

    `add_generation_prompt=None` means yes, unless the last message is to be continued.
    """
    return not continue_final_message if add_generation_prompt is None else add_generation_prompt
