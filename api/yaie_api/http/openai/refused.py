"""Fields that are known and not served: refused when they ask for something, or ignored.

A field that would change the output is never ignored. Those that only describe the request to its
sender's provider are.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from yaie_api.errors import InvalidRequestError

Harmless = Callable[[Any], bool]


def only(*values: Any) -> Harmless:
    """The field may be sent with a value that asks for nothing."""
    return lambda value: any(value == v and type(value) is type(v) for v in values)


NEVER: Final = only()

FORMATS: Final = (
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "regex", "ebnf", "json_schema", "grammar",
)  # fmt: skip
"""Spellings of the form that the output must have: OpenAI's, vLLM's, SGLang's and llama.cpp's."""

CONSTRAINTS: Final = (
    "guided_whitespace_pattern", "structural_tag", "stop_regex", "logits_processors",
    "thinking_token_budget",
)  # fmt: skip
"""Fields that promise something of the output which nobody here can keep."""

NOT_IMPLEMENTED: Final[Mapping[str, Harmless]] = {
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
} | dict.fromkeys(CONSTRAINTS, NEVER)
"""Field → whether a value of it asks for nothing. Any other value is refused with its name."""

INSTEAD: Final = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "chat_template": "templates come from the model or from the server's operator only",
    "suffix": "this model cannot fill in the middle",
    "audio": "this server is text-only",
    "modalities": "this server is text-only",
    "add_special_tokens": "the chat template writes them",
}

IGNORED: Final = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "verbosity", "request_id", "length_penalty", "early_stopping",
    "spaces_between_special_tokens", "mm_processor_kwargs", "guided_decoding_backend",
})  # fmt: skip
"""Fields that change nothing here, and that clients send with good reason."""


def refuse_not_implemented(given: Mapping[str, Any], served: frozenset[str]) -> None:
    """Refuse fields of a generation that ask for what nobody here does. `served`: fields that this
    kind of request has after all.

    Raises:
        InvalidRequestError: a field asks for that; the error names the first.

    """
    refuse_all_but(NOT_IMPLEMENTED, INSTEAD, given, served)


def refuse_all_but(
    table: Mapping[str, Harmless],
    instead: Mapping[str, str],
    given: Mapping[str, Any],
    served: frozenset[str],
) -> None:
    """Refuse fields of a table that ask for something. `served`: fields that are not meant;
    `instead`: what to do about a field.

    Raises:
        InvalidRequestError: a field asks for something; the error names the first.

    """
    for name in sorted((given.keys() & table.keys()) - served):
        if not table[name](given[name]):
            raise InvalidRequestError(
                f"{name} is not supported by this server; {instead.get(name, 'leave it out')}.",
                param=name,
                code="unsupported_parameter",
            )


def refuse_forms(given: Mapping[str, Any], instead: str) -> None:
    """Refuse fields that ask for a form of the output in the words of another API. `instead`: where
    this API has it.

    Raises:
        InvalidRequestError: one is given; the error names the first.

    """
    for name in (*FORMATS, *CONSTRAINTS, "output_format"):
        if name in given:
            raise InvalidRequestError(
                f"{name} is not a field of this API; use {instead}.",
                param=name,
                code="unsupported_parameter",
            )
