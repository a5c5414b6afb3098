"""The fields that chat and text completions share: sampling, streaming, output format."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.refused import FORMATS, IGNORED, NOT_IMPLEMENTED, refuse_not_implemented
from yaie_api.http.wire import (
    CacheSalt,
    Integer,
    NamedRequest,
    Priority,
    TokenId,
    Truncation,
    Wire,
    shown,
)

MAX_STRINGS: Final = 128
MAX_IDS: Final = 65_536
MAX_BIASES: Final = 1024

_Strings = Annotated[list[str], Field(max_length=MAX_STRINGS, fail_fast=True)]
_Ids = Annotated[list[TokenId], Field(max_length=MAX_IDS, fail_fast=True)]
JsonObject = dict[str, Any]


class StreamOptions(Wire):
    """What a stream contains besides the text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = False

    @model_validator(mode="after")
    def _check_obfuscation(self) -> Self:
        if self.include_obfuscation:
            raise InvalidRequestError(
                "stream_options.include_obfuscation is not supported by this server: its chunks "
                "are as long as their text; leave it out.",
                param="stream_options",
                code="unsupported_parameter",
            )
        return self


class JsonSchema(Wire):
    """A named schema of a `response_format`."""

    name: Annotated[str, Field(max_length=256)] | None = None
    description: str | None = None
    schema_: Annotated[JsonObject | bool | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Wire):
    """The form that the output must have."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Wire):
    """vLLM's field for the form of the output, with more kinds. Exactly one field is given."""

    json_: Annotated[JsonObject | bool | str | None, Field(alias="json")] = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | JsonObject | None = None


class GenerationRequest(NamedRequest):
    """The fields that chat and text completions share.

    Types of sampling fields are checked here, their ranges by the engine's sampling parameters. A
    number that is None takes the model's default.
    """

    n: Integer = 1
    best_of: Integer | None = None
    max_tokens: Integer | None = None
    min_tokens: Integer | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_BIASES)] | None = None
    bad_words: _Strings | None = None
    allowed_token_ids: _Ids | None = None
    seed: Integer | None = None
    stop: str | _Strings | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=128, fail_fast=True)] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    prompt_logprobs: Annotated[Integer, Field(ge=-1)] | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left", "right"] = "left"
    priority: Priority = 0
    echo: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    cache_salt: CacheSalt | None = None

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        refuse_not_implemented(given, frozenset(cls.model_fields))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        _check_stream(self)
        if self.best_of not in (None, self.n):
            raise InvalidRequestError(
                "best_of must equal n: every output that is made is returned.", param="best_of"
            )
        _ = self.biases
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.include_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )

    @property
    def num_logprobs(self) -> int | None:
        """Number of most likely tokens to return per output token; None: no log-probabilities."""
        return None

    @property
    def biases(self) -> dict[int, float]:
        """`logit_bias` by token id.

        Raises:
            InvalidRequestError: a key is not a token id.

        """
        return {_token_id(key): bias for key, bias in (self.logit_bias or {}).items()}

    @property
    def formats(self) -> dict[str, Any]:
        """The fields that specify the form of the output, as the client sent them."""
        extra = self.model_extra or {}
        found: dict[str, Any] = {name: extra[name] for name in FORMATS if name in extra}
        for name in ("response_format", "structured_outputs"):
            given: Wire | None = getattr(self, name)
            if given is not None:
                found[name] = given.model_dump(by_alias=True, exclude_unset=True)
        return found

    @property
    def form_size(self) -> int:
        """Size of `formats` in characters, which decides where they are translated."""
        formats = self.formats
        return len(json.dumps(formats)) if formats else 0

    @property
    def unknown_fields(self) -> list[str]:
        """Fields that the client sent and this server does not know."""
        known = IGNORED.union(FORMATS, NOT_IMPLEMENTED)
        return [name for name in self.model_extra or () if name not in known]


def _check_stream(request: GenerationRequest) -> None:
    if request.stream_options is not None and not request.stream:
        raise InvalidRequestError(
            "stream_options is allowed only when stream is true.", param="stream_options"
        )
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequestError(
            "prompt_logprobs are not available with stream.", param="prompt_logprobs"
        )


def _token_id(key: str) -> int:
    if key.isascii() and key.isdecimal() and len(key) < 11 and int(key) < 2**31:
        return int(key)
    raise InvalidRequestError(
        f"logit_bias: {shown(key)} is not a token id; keys are token ids, as strings.",
        param="logit_bias",
    )
