"""The chat template of a model: read from its folder, rendered in a sandbox with bounded output.

Templates come from the model only, never from a request. The environment has what checkpoints on
the hub rely on: loop controls, `generation` blocks, `tojson`, `raise_exception`, `strftime_now`.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from yaie_api.errors import InvalidRequestError

MAX_RENDERED_CHARACTERS: Final = 16 * 1024 * 1024
RESERVED_VARIABLES: Final = frozenset({"messages", "add_generation_prompt"})
_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A compiled template with the model's own special tokens as variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        try:
            self._template = _environment().from_string(source)
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
    ) -> str:
        """Raises InvalidRequestError when the template refuses or its output is too long."""
        if clash := RESERVED_VARIABLES & variables.keys():
            raise InvalidRequestError(
                f"chat_template_kwargs must not set {min(clash)}.",
                param="chat_template_kwargs",
            )
        context = self._special_tokens | {"tools": None, "documents": None} | dict(variables)
        try:
            return self._bounded(
                context | {"messages": messages, "add_generation_prompt": add_generation_prompt}
            )
        except (jinja2.TemplateError, TypeError, ValueError, OverflowError, KeyError) as error:
            raise InvalidRequestError(
                f"The chat template refuses these messages: {error}", param="messages"
            ) from error

    def _bounded(self, context: dict[str, Any]) -> str:
        parts: list[str] = []
        left = MAX_RENDERED_CHARACTERS
        for part in self._template.generate(context):
            left -= len(part)
            if left < 0:
                raise ValueError("the rendered conversation is too long")
            parts.append(part)
        return "".join(parts)


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """`chat_template.jinja` or the one in `tokenizer_config.json`; None when there is none."""
    config = _read_json(folder / "tokenizer_config.json")
    source = _template_source(folder, config)
    if source is None:
        return None
    return ChatTemplate(source, _special_tokens(config))


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


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # the output is a prompt, not HTML
        extensions=[loopcontrols, GenerationBlock],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    return environment


class GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks training text; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=options.get("ensure_ascii", False), indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return dt.datetime.now().astimezone().strftime(pattern)
