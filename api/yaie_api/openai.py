"""OpenAI's wire types, as yaie speaks them: what a request may hold and what an answer looks like.

`parse` is the one door: JSON values in, a frozen request out, or an InvalidRequestError that names
the field. Null means omitted; unknown fields are accepted; a field that would change the output and
that this version does not implement is refused, so that nothing is silently ignored.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from yaie_api.errors import InvalidRequestError

MAX_MESSAGES: Final = 2048
MAX_PARTS: Final = 2048
MAX_PROMPTS: Final = 128
MAX_DEPTH: Final = 64
MAX_FIELDS: Final = 256
MAX_CONTAINERS: Final = 32_768
"""Lists and objects at one level of a body: checking a million empty ones takes seconds."""
MAX_TEMPLATE_VARIABLES: Final = 64
MAX_SALT_LENGTH: Final = 128

_FORBIDDEN_IN_SALT: Final = frozenset("@/\\\0")
_Integer = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
_TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
_TokenIds = Annotated[list[_TokenId], Field(fail_fast=True)]
"""Long lists stop at their first bad entry: a million reports would take ten seconds and 1 GB."""


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)


class StreamOptions(_Wire):
    """What a stream carries besides the text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class GenerationRequest(_Wire):
    """The fields that chat and text completions share. Ranges are checked by the engine's
    sampling parameters, types here. Numbers that are None take the model's default.
    """

    model: Annotated[str, Field(max_length=512)] | None = None
    max_tokens: _Integer | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: _Integer | None = None
    min_p: float | None = None
    seed: _Integer | None = None
    stop: str | Annotated[list[str], Field(max_length=64, fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[_TokenId], Field(max_length=128, fail_fast=True)] | None = None
    min_tokens: _Integer | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    cache_salt: Annotated[str, Field(max_length=MAX_SALT_LENGTH)] | None = None

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError(
                "stream_options is allowed only when stream is true.", param="stream_options"
            )
        return self

    @model_validator(mode="after")
    def _check_salt(self) -> Self:
        if self.cache_salt is not None and _FORBIDDEN_IN_SALT & set(self.cache_salt):
            raise InvalidRequestError(
                "cache_salt must not contain '@', '/', '\\' or NUL.", param="cache_salt"
            )
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.include_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )


class TextPart(_Wire):
    """A piece of a message's content. Only text: this server fetches and decodes nothing."""

    type: Literal["text"]
    text: str


class Message(_Wire):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = (
        None
    )
    name: Annotated[str, Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise InvalidRequestError(
                f"a message of role {self.role} needs content.", param="messages"
            )
        return self

    @property
    def text(self) -> str:
        """The content as one string; parts are joined by line breaks."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class ChatCompletionRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: _Integer | None = None
    add_generation_prompt: bool = True
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    chat_template_kwargs: (
        Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)] | None
    ) = None

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.output_limit is not None and self.output_limit < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, got {self.output_limit}.", param="max_tokens"
            )
        return self

    @property
    def output_limit(self) -> int | None:
        """The newer field wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def template_variables(self) -> dict[str, Any]:
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return effort | (self.chat_template_kwargs or {})

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as templates read them: `developer` is today's word for `system`."""
        return [_for_template(message) for message in self.messages]


def _for_template(message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    entry: dict[str, Any] = {"role": role, "content": message.text}
    return entry if message.name is None else entry | {"name": message.name}


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. A prompt is a text or token ids; a list of them is a batch."""

    prompt: (
        str
        | _TokenIds
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[_TokenIds], Field(fail_fast=True)]
    )
    add_special_tokens: bool = True

    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one, each a text or token ids. At least one, none without tokens."""
        found = _as_prompts(self.prompt)
        if not found or any(prompt == [] for prompt in found):
            raise InvalidRequestError("prompt must not be empty.", param="prompt")
        if len(found) > MAX_PROMPTS:
            raise InvalidRequestError(
                f"prompt has {len(found)} entries; at most {MAX_PROMPTS} are allowed.",
                param="prompt",
            )
        return found


def _as_prompts(
    prompt: str | list[int] | list[str] | list[list[int]],
) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    token_ids = [entry for entry in prompt if isinstance(entry, int)]
    if token_ids:
        return [token_ids]
    return [entry for entry in prompt if not isinstance(entry, int)]


class TokenizeRequest(_Wire):
    """POST /tokenize: a prompt, or messages that the chat template renders."""

    model: str | None = None
    prompt: str | None = None
    messages: (
        Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
        | None
    ) = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False
    chat_template_kwargs: (
        Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)] | None
    ) = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("give either prompt or messages.", param="prompt")
        return self

    def conversation(self) -> list[dict[str, Any]]:
        return [_for_template(message) for message in self.messages or ()]


class DetokenizeRequest(_Wire):
    """POST /detokenize."""

    model: str | None = None
    tokens: _TokenIds


class Usage(BaseModel):
    """Tokens of one request. `cached_tokens` of the prompt came from the prefix cache;
    `reasoning_tokens` of the completion are the model's reasoning.
    """

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def wire(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }


Request = TypeVar("Request", bound=_Wire)
Harmless = Callable[[Any], bool]


def _only(*values: Any) -> Harmless:
    """The field may be sent with a value that asks for nothing."""
    return lambda value: any(value == v and type(value) is type(v) for v in values)


_NEVER: Final = _only()

CONSTRAINTS: Final = (
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
    "guided_whitespace_pattern", "structured_outputs", "structural_tag", "grammar", "json_schema",
    "regex", "ebnf",
)  # fmt: skip
"""Fields that promise a form of the output: never ignored."""

NOT_IMPLEMENTED: Final[Mapping[str, Harmless]] = {
    "n": _only(1),
    "best_of": _only(1),
    "use_beam_search": _only(False),
    "logprobs": _only(False),
    "top_logprobs": _only(0),
    "prompt_logprobs": _NEVER,
    "presence_penalty": _only(0, 0.0),
    "frequency_penalty": _only(0, 0.0),
    "repetition_penalty": _only(1, 1.0),
    "logit_bias": _only({}),
    "bad_words": _only([]),
    "allowed_token_ids": _NEVER,
    "tools": _NEVER,
    "tool_choice": _only("none"),
    "functions": _NEVER,
    "function_call": _only("none"),
    "response_format": _only({"type": "text"}),
    "modalities": _only(["text"]),
    "audio": _NEVER,
    "prediction": _NEVER,
    "web_search_options": _NEVER,
    "echo": _only(False),
    "suffix": _only(""),
    "continue_final_message": _only(False),
    "chat_template": _NEVER,
    "truncate_prompt_tokens": _NEVER,
    "prompt_embeds": _NEVER,
    "priority": _only(0),
} | dict.fromkeys(CONSTRAINTS, _NEVER)
"""Field → whether a value of it asks for nothing. Any other value is refused with its name."""

_TOOL_FIELDS: Final = ("tool_calls", "function_call", "tool_call_id")


def parse(kind: type[Request], body: Any) -> Request:
    """Check a decoded JSON body and return the request.

    Raises:
        InvalidRequestError: what is wrong, `param` naming the field.

    """
    if not isinstance(body, dict):
        raise InvalidRequestError("The request body must be a JSON object.")
    _check_size(body)
    given = {name: value for name, value in body.items() if value is not None}
    _refuse_not_implemented(given)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _first_problem(error, given) from None


def _refuse_not_implemented(given: Mapping[str, Any]) -> None:
    for name in given.keys() & NOT_IMPLEMENTED.keys():
        if not NOT_IMPLEMENTED[name](given[name]):
            raise InvalidRequestError(
                f"{name} is not supported by this server; leave it out.",
                param=name,
                code="unsupported_parameter",
            )
    messages = given.get("messages")
    for message in messages if isinstance(messages, list) else ():
        _refuse_tools_in(message)


def _refuse_tools_in(message: Any) -> None:
    if not isinstance(message, dict):
        return
    used = next((name for name in _TOOL_FIELDS if message.get(name)), None)
    if message.get("role") in ("tool", "function"):
        used = "role " + message["role"]
    if used is not None:
        raise InvalidRequestError(
            f"Tool calling is not supported by this server ({used} in messages).",
            param="messages",
            code="unsupported_parameter",
        )


def _check_size(body: Any) -> None:
    """Refuse nesting deeper than MAX_DEPTH, level by level (no recursion), and what is too wide."""
    if len(body) > MAX_FIELDS:
        raise InvalidRequestError(f"The request has more than {MAX_FIELDS} fields.")
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
        if len(level) > MAX_CONTAINERS:
            raise InvalidRequestError(
                f"The request holds more than {MAX_CONTAINERS} lists and objects at one level."
            )
    raise InvalidRequestError(f"The request is nested deeper than {MAX_DEPTH} levels.")


_CONTAINERS: Final = frozenset((dict, list))


def _children(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if type(item) in _CONTAINERS]


def _first_problem(error: ValidationError, given: Mapping[str, Any]) -> InvalidRequestError:
    """One sentence about the deepest problem; the input's text is not echoed."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    problem = max(problems, key=lambda p: len(p["loc"]))
    name = str(problem["loc"][0]) if problem["loc"] else None
    if name is not None and name not in given:
        return InvalidRequestError(f"{name} is required.", param=name)
    path = ".".join(str(part) for part in problem["loc"] if not _is_variant(part))
    return InvalidRequestError(f"{path or 'body'}: {problem['msg']}.", param=name)


def _is_variant(part: int | str) -> bool:
    """Pydantic's own names of union members in a path, such as `list[str]`."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool"))
