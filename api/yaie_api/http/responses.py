"""Request types of OpenAI's Responses API: POST /v1/responses and /v1/responses/input_tokens.

`yaie.server.responses.input` checks the input's items when it translates them into turns; all other
fields are checked here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.generation import MAX_BIASES, MAX_IDS, MAX_STRINGS, StreamOptions
from yaie_api.http.openai.refused import refuse_forms
from yaie_api.http.wire import Integer, ModelRequest, TokenId, Wire

MAX_ITEMS: Final = 2048
MAX_METADATA: Final = 16
MAX_TOOLS: Final = 128

_Item = dict[str, Any]
_Strings = Annotated[list[str], Field(max_length=MAX_STRINGS, fail_fast=True)]
_Ids = Annotated[list[TokenId], Field(max_length=MAX_IDS, fail_fast=True)]
LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
NOT_HERE: Final[Mapping[str, tuple[Any, ...]]] = {
    "background": (False,),
    "conversation": (),
    "context_management": ([],),
    "prompt": (),
    "moderation": (),
    # vLLM's
    "enable_response_messages": (False,),
    "kv_transfer_params": ({},),
    "previous_input_messages": (),
    "previous_response": (),
    "request_id": (),
    "vllm_xargs": ({},),
}
"""Field → values that request nothing; any other value is refused."""


class Reasoning(Wire):
    """How much the model reasons. `summary` has no effect: the whole reasoning is returned."""

    effort: Annotated[str, Field(max_length=32)] | None = None
    summary: str | None = None


class TextFormat(Wire):
    """The form of the output, as `text.format`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Annotated[str, Field(max_length=64)] | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    description: str | None = None


class TextOptions(Wire):
    """`text` of a request. `verbosity` has no effect, and the answer's headers say so."""

    format: TextFormat | None = None
    verbosity: str | None = None


class InputTokensRequest(ModelRequest):
    """POST /v1/responses/input_tokens: the fields of a response that make up its prompt."""

    input: str | Annotated[list[_Item], Field(max_length=MAX_ITEMS, fail_fast=True)]
    instructions: str | None = None
    tools: Annotated[list[_Item], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: str | _Item = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    chat_template_kwargs: dict[str, Any] | None = None

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        """Refuse fields that request something which this server does not do.

        Raises:
            InvalidRequestError: there is such a field.

        """
        refuse_forms(given, "text.format")
        for name, harmless in NOT_HERE.items():
            if name in given and given[name] not in harmless:
                raise InvalidRequestError(
                    f"{name} is not supported by this server; leave it out.",
                    param=name,
                    code="unsupported_parameter",
                )

    @property
    def text_format(self) -> TextFormat:
        """The form of the output; the default is plain text."""
        return (self.text and self.text.format) or TextFormat()


class ResponsesRequest(InputTokensRequest):
    """One request of the responses API. The sampling fields that OpenAI's API lacks are vLLM's."""

    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    min_tokens: Integer | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: Integer | None = None
    stop: str | _Strings | None = None
    stop_token_ids: _Ids | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_BIASES)] | None = None
    bad_words: _Strings | None = None
    allowed_token_ids: _Ids | None = None
    top_logprobs: Annotated[Integer, Field(ge=0)] | None = None
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    store: bool = True
    metadata: Annotated[dict[str, str], Field(max_length=MAX_METADATA)] | None = None
    include: _Strings | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    client_metadata: dict[str, Any] | None = None
    user: str | None = None
    cache_salt: str | None = None
    priority: Integer = 0

    @model_validator(mode="after")
    def _check_logprobs(self) -> Self:
        if self.top_logprobs and not self.includes(LOGPROBS):
            raise InvalidRequestError(
                f"top_logprobs needs include: [{LOGPROBS!r}].", param="top_logprobs"
            )
        return self

    def includes(self, what: str) -> bool:
        """Whether the client asks for this beside the output."""
        return what in (self.include or ())
