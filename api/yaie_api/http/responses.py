"""Request types of OpenAI's Responses API: POST /v1/responses.

`yaie.server.responses.input` checks the input's items when it translates them into turns; all other
fields are checked here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.refused import refuse_forms
from yaie_api.http.wire import Integer, ModelRequest, Wire

MAX_ITEMS: Final = 2048
MAX_METADATA: Final = 16
MAX_TOOLS: Final = 128

_Item = dict[str, Any]
NOT_HERE: Final[Mapping[str, tuple[Any, ...]]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "top_logprobs": (0,),
    "max_tool_calls": (),
    "moderation": (),
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
    """`text` of a request."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesRequest(ModelRequest):
    """One request of the responses API."""

    input: str | Annotated[list[_Item], Field(max_length=MAX_ITEMS, fail_fast=True)]
    instructions: str | None = None
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    seed: Integer | None = None
    tools: Annotated[list[_Item], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: str | _Item = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    stream: bool = False
    store: bool = True
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=MAX_METADATA)] | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    user: str | None = None
    cache_salt: str | None = None
    priority: Integer = 0
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
        if given.get("truncation") == "auto":
            raise InvalidRequestError(
                "truncation must be disabled: this server does not drop turns by itself.",
                param="truncation",
                code="unsupported_parameter",
            )
        include = given.get("include")
        if isinstance(include, list) and "message.output_text.logprobs" in include:
            raise InvalidRequestError(
                "log-probabilities are not told here; use /v1/chat/completions.",
                param="include",
                code="unsupported_parameter",
            )

    @property
    def text_format(self) -> TextFormat:
        """The form of the output; the default is plain text."""
        return (self.text and self.text.format) or TextFormat()
