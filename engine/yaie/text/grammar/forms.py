"""Converts the request fields that specify the form of the output to one `Grammar`.

The fields are OpenAI's `response_format`, vLLM's `structured_outputs` and its older `guided_*`
fields, and those of SGLang and llama.cpp. They have the same few kinds under many names; a request
may use only one of them.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from yaie.core.request import Grammar, ReasoningBlock
from yaie.text.grammar import gbnf, lark
from yaie.text.grammar.schema import MAX_PATTERN_CHARACTERS, check_schema, ends_escaping
from yaie_api.errors import InvalidRequestError

MAX_GRAMMAR_CHARACTERS: Final = 32 << 10
MAX_CHOICES: Final = 1024
MAX_CHOICE_CHARACTERS: Final = 64 << 10
ANY_OBJECT: Final = {"type": "object"}
_LARK_START: Final = re.compile(
    r"^[ \t]*([?!]?start(\.-?\d+)?[ \t]*:(?!:=)|%llguidance\b)", re.MULTILINE
)


def grammar_of(fields: Mapping[str, Any]) -> Grammar | None:
    """Return the grammar that a request specifies; None: any text is allowed.

    `fields`: the request's values of the fields in `FIELDS`; None counts as absent.

    Raises:
        InvalidRequestError: two fields specify a form, a kind is not supported, or a value is
            invalid; `param` names the field.

    """
    asked = [(name, value) for name, value in fields.items() if name in _READERS]
    grammars = [_READERS[name](value, name) for name, value in asked if value is not None]
    found = [grammar for grammar in grammars if grammar is not None]
    if len(found) > 1:
        first, second = found[0].param, found[1].param
        raise InvalidRequestError(
            f"{first} and {second} both set the form of the output; give one of them.", param=second
        )
    return found[0] if found else None


def after_reasoning(grammar: Grammar, block: ReasoningBlock | None) -> Grammar:
    """The grammar that applies only after the reasoning, which is free text."""
    return msgspec.structs.replace(grammar, after=block)


def _response_format(value: Any, param: str) -> Grammar | None:
    kind = _mapping(value, param).get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        schema = value.get("schema")
        return _json(ANY_OBJECT if schema is None else schema, param)
    if kind == "json_schema":
        return _json_schema_format(value, param)
    if kind == "structural_tag":
        raise _error("structural_tag is not supported; use tools with tool_choice.", param)
    raise _error(f"type is {kind!r}; use text, json_object or json_schema.", param)


def _json_schema_format(value: Mapping[str, Any], param: str) -> Grammar:
    """Read the schema from `json_schema` (OpenAI's form), or from beside `type` (others' form)."""
    inner = value.get("json_schema")
    wrapped = _mapping(value if inner is None else inner, param)
    schema = wrapped.get("schema")
    if schema is None:
        raise _error("json_schema needs a schema.", param)
    return _json(schema, param)


def _structured_outputs(value: Any, param: str) -> Grammar | None:
    """Read vLLM's object: one kind. What chooses among vLLM's own backends has no effect."""
    given = {key: item for key, item in _mapping(value, param).items() if item is not None}
    for option in _BACKENDS:
        given.pop(option, None)
    for option in _OPTIONS:
        if given.pop(option, False) is not False:
            raise _error(f"{option} is not supported; write it into the schema.", param)
    if given.get("json_object") is False:
        del given["json_object"]
    if not given:
        return None
    if len(given) > 1:
        raise _error(f"needs exactly one kind; it has {', '.join(sorted(given))}.", param)
    ((kind, item),) = given.items()
    if kind not in _KINDS:
        raise _error(f"{kind} is not supported; use one of {', '.join(_KINDS)}.", param)
    return _KINDS[kind](item, param)


def _json(value: Any, param: str) -> Grammar:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _error("the schema is not valid JSON.", param) from None
    schema = check_schema(value, param=param)
    return Grammar("json_schema", json.dumps(schema, ensure_ascii=False), param)


def _json_object(value: Any, param: str) -> Grammar:
    if value is not True:
        raise _error("json_object must be true or false.", param)
    return _json(ANY_OBJECT, param)


def _regex(value: Any, param: str) -> Grammar:
    text = _text(value, param, "a regular expression", MAX_PATTERN_CHARACTERS)
    if ends_escaping(text):
        raise _error("the regular expression ends in the middle of an escape.", param)
    return Grammar("regex", text, param)


def _choice(value: Any, param: str) -> Grammar:
    if not isinstance(value, list) or not value or not all(isinstance(c, str) for c in value):
        raise _error("choice must be a list of strings that is not empty.", param)
    if len(value) > MAX_CHOICES or sum(map(len, value)) > MAX_CHOICE_CHARACTERS:
        limits = f"{MAX_CHOICES} entries and {MAX_CHOICE_CHARACTERS} characters"
        raise _error(f"choice has too many entries; at most {limits} are allowed.", param)
    if "" in value:
        raise _error("choice must not have an empty string.", param)
    _unicode("".join(value), param)
    return Grammar("lark", "start: " + " | ".join(map(lark.literal, dict.fromkeys(value))), param)


def _grammar(value: Any, param: str) -> Grammar:
    """Read a grammar in Lark, or in llama.cpp's EBNF (GBNF), whose start rule is `root`."""
    text = _text(value, param, "a grammar", MAX_GRAMMAR_CHARACTERS)
    if _LARK_START.search(text):
        return Grammar("lark", text, param)
    try:
        return Grammar("lark", gbnf.to_lark(text), param)
    except gbnf.GbnfError as error:
        raise _error(f"the grammar cannot be read: {error}.", param) from error


def _mapping(value: Any, param: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _error("must be an object.", param)
    return value


def _text(value: Any, param: str, what: str, limit: int) -> str:
    if not isinstance(value, str) or not value:
        raise _error(f"must be {what}, written as a string.", param)
    if len(value) > limit:
        raise _error(f"has {len(value)} characters; at most {limit} are allowed.", param)
    return _unicode(value, param)


def _unicode(text: str, param: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _error("is not valid Unicode.", param) from None
    return text


def _error(text: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {text}", param=param)


_BACKENDS: Final = ("disable_fallback", "backend")
_OPTIONS: Final = ("disable_any_whitespace", "disable_additional_properties")
"""They would change what is allowed, so only false is accepted."""
_KINDS: Final[dict[str, Callable[[Any, str], Grammar]]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
}
_READERS: Final[dict[str, Callable[[Any, str], Grammar | None]]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _json,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "json_schema": _json,
    "regex": _regex,
    "ebnf": _grammar,
    "grammar": _grammar,
}
FIELDS: Final = tuple(_READERS)
"""The request fields that `grammar_of` reads."""
