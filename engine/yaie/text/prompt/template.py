"""A model's chat template: read from its folder, rendered in a sandbox with limits.

Templates come from the model or the server's operator, never from a request. The sandbox provides
what templates on the hub need: loop controls, `generation` blocks, `tojson`, `raise_exception`,
`strftime_now`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from yaie.text.prompt.sandbox import (
    MAX_CHARACTERS,
    Sandbox,
    TemplateLimitError,
    TemplateRefusedError,
)
from yaie_api.errors import InvalidRequestError

RENDER_S: Final = 5.0
RESERVED_VARIABLES: Final = frozenset({"messages", "add_generation_prompt"})
_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A compiled template, with the model's special tokens as variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.from_string(source)
        except jinja2.TemplateError as error:
            raise InvalidRequestError(
                f"The model's chat template cannot be read: {error}", param="model"
            ) from error
        self._special_tokens = dict(special_tokens or {})

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
        limit_s: float = RENDER_S,
    ) -> str:
        """Render a conversation.

        Raises:
            InvalidRequestError: the template refuses the messages, or its output is too long.
            TemplateTimeoutError: rendering takes longer than `limit_s`.

        """
        if clash := RESERVED_VARIABLES & variables.keys():
            raise InvalidRequestError(
                f"chat_template_kwargs must not set {min(clash)}.",
                param="chat_template_kwargs",
            )
        context = self._special_tokens | {"tools": None, "documents": None} | dict(variables)
        context |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            with self._sandbox.limit(limit_s):
                return self._bounded(context)
        except TemplateRefusedError as error:
            raise _refused(f": {error}") from error
        except TemplateLimitError as error:
            raise _refused(": the result would be too long.") from error
        except _CANNOT_RENDER as error:
            raise _refused(".") from error

    def _bounded(self, context: dict[str, Any]) -> str:
        parts: list[str] = []
        left = MAX_CHARACTERS
        for part in self._template.generate(context):
            left -= len(part)
            if left < 0:
                raise TemplateLimitError
            parts.append(part)
        return "".join(parts)


_CANNOT_RENDER: Final = (
    jinja2.TemplateError, TypeError, ValueError, AttributeError, ArithmeticError, LookupError,
    RecursionError, MemoryError,
)  # fmt: skip
"""Errors that a template's code raises for messages that it does not support."""


def _refused(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"The chat template refuses these messages{why}", param="messages")


def check_template_file(file: Path) -> None:
    """Check a template that somebody has named, before a model is loaded for it.

    Raises:
        InvalidRequestError: there is no such file, or it is no template.

    """
    if not file.is_file():
        raise InvalidRequestError(
            f"There is no chat template at {str(file)!r}: name a file with --chat-template.",
            param="chat_template",
        )
    try:
        Sandbox().from_string(_read_file(file))
    except jinja2.TemplateSyntaxError as error:
        raise InvalidRequestError(
            f"The chat template {str(file)!r} is no Jinja template: line {error.lineno}: "
            f"{error.message}.",
            param="chat_template",
        ) from error


def load_chat_template(folder: Path, file: Path | None = None) -> ChatTemplate | None:
    """Load `file` if given, else the model's `chat_template.jinja`, else the template in its
    `tokenizer_config.json`; None if there is none.

    Raises:
        InvalidRequestError: the template cannot be read.

    """
    config = _read_json(folder / "tokenizer_config.json")
    source = _template_source(folder, config) if file is None else _read_file(file)
    if source is None:
        return None
    return ChatTemplate(source, _special_tokens(config))


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidRequestError(
            f"The chat template {path.name} cannot be read.", param="chat_template"
        ) from error


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # several named templates
        named = {entry["name"]: entry["template"] for entry in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    values = {name: config.get(name) for name in _SPECIAL_TOKENS}
    return {
        name: value["content"] if isinstance(value, dict) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidRequestError(
            f"The model's {path.name} is not valid JSON: {error}", param="model"
        ) from error
    return loaded if isinstance(loaded, dict) else {}
