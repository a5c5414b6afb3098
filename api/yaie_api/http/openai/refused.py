"""Known fields that this server does not implement: which are refused and which are ignored.

A field that would change the output is never ignored: it is refused unless its value requests
nothing. Fields that only describe the request, such as `user`, are ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from yaie_api.errors import InvalidRequestError

Harmless = Callable[[Any], bool]


def only(*values: Any) -> Harmless:
    """A predicate that accepts only these values, which request nothing."""
    return lambda value: any(value == v and type(value) is type(v) for v in values)


NEVER: Final = only()

FORMATS: Final = (
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "regex", "ebnf", "json_schema", "grammar",
)  # fmt: skip
"""Fields for the form of the output: those of OpenAI, vLLM, SGLang and llama.cpp."""

CONSTRAINTS: Final = (
    "guided_whitespace_pattern", "structural_tag", "stop_regex", "logits_processors",
    "thinking_token_budget",
)  # fmt: skip
"""Fields that constrain the output in ways that this server cannot guarantee."""

NOT_IMPLEMENTED: Final[Mapping[str, Harmless]] = dict.fromkeys(CONSTRAINTS, NEVER) | {
    "use_beam_search": only(False),
    "functions": NEVER,
    "function_call": only("none"),
    "modalities": only(["text"]),
    "audio": NEVER,
    "prediction": NEVER,
    "web_search_options": NEVER,
    "suffix": only(""),
    "chat_template": NEVER,
    "prompt_embeds": NEVER,
    "add_special_tokens": only(False),
    "thinking_token_budget": only(-1),
    "logprob_token_ids": NEVER,
    "moderation": NEVER,
    "watermarking": only(False),
    "stream_interval": only(1),
    "routed_experts_prompt_start": only(0),
    "kv_transfer_params": only({}),
    "ec_transfer_params": only({}),
    "vllm_xargs": only({}),
    "repetition_detection": NEVER,
}
"""Field → predicate of values that request nothing. Any other value is refused."""

INSTEAD: Final = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "chat_template": "templates come from the model or from the server's operator only",
    "suffix": "this model cannot fill in the middle",
    "audio": "this server is text-only",
    "modalities": "this server is text-only",
    "add_special_tokens": "the chat template writes them",
    "logprob_token_ids": "ask for the likeliest tokens with top_logprobs or logprobs",
    "thinking_token_budget": "use max_tokens",
}

IGNORED: Final = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options", "length_penalty", "early_stopping",
    "spaces_between_special_tokens", "mm_processor_kwargs", "media_io_kwargs",
    "guided_decoding_backend", "session_id", "return_token_offsets", "return_mm_kwargs",
})  # fmt: skip
"""Fields that clients may legitimately send and that have no effect here."""


def refuse_not_implemented(given: Mapping[str, Any], served: frozenset[str]) -> None:
    """Refuse fields of a generation that request something not implemented.

    `served`: fields that this type of request implements.

    Raises:
        InvalidRequestError: there is such a field; the error names the first.

    """
    refuse_all_but(NOT_IMPLEMENTED, INSTEAD, given, served)


def refuse_all_but(
    table: Mapping[str, Harmless],
    instead: Mapping[str, str],
    given: Mapping[str, Any],
    served: frozenset[str],
) -> None:
    """Refuse fields of `table` whose values request something.

    `served`: fields to accept anyway. `instead`: advice by field, for the message.

    Raises:
        InvalidRequestError: there is such a field; the error names the first.

    """
    for name in sorted((given.keys() & table.keys()) - served):
        if not table[name](given[name]):
            raise InvalidRequestError(
                f"{name} is not supported by this server; {instead.get(name, 'leave it out')}.",
                param=name,
                code="unsupported_parameter",
            )


def refuse_forms(given: Mapping[str, Any], instead: str) -> None:
    """Refuse fields by which other APIs specify the form of the output.

    `instead`: this API's field for it.

    Raises:
        InvalidRequestError: there is such a field; the error names the first.

    """
    for name in (*FORMATS, *CONSTRAINTS, "output_format"):
        if name in given:
            raise InvalidRequestError(
                f"{name} is not a field of this API; use {instead}.",
                param=name,
                code="unsupported_parameter",
            )
