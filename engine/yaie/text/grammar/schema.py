"""Checks a user's JSON schema: its size, its depth, and that every keyword can be enforced.

Every keyword of a JSON Schema draft is either enforced or refused by name. Annotations are removed:
titles, examples, and keywords and formats of no draft, unless they look like misspelt known ones.
"""

import difflib
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from yaie.text.grammar import schema_keywords as keywords
from yaie_api.errors import InvalidRequestError

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_SCHEMA_DEPTH: Final = 32
MAX_PATTERN_CHARACTERS: Final = 4096
MAX_PLAIN_BYTES: Final = 4096
MAX_UNKNOWN_WORDS: Final = 64
"""Most different unknown words in a schema: comparing one with all known words takes 0.1 ms."""
MAX_MISSPELT_CHARACTERS: Final = 32
"""Longest word that can be close to a known word."""


def check_schema(schema: Any, *, param: str, where: str = "") -> dict[str, Any] | bool:
    """Check a schema and return it without annotations.

    Raises:
        InvalidRequestError: it is not a schema, exceeds a limit, or has an unsupported keyword.

    """
    return _Reader(param, where).read(schema)


def is_plain(schema: Any) -> bool:
    """Whether a schema is certain to be enforceable: small, with simple keywords only."""
    try:
        small = len(json.dumps(schema)) <= MAX_PLAIN_BYTES
        return small and _has_plain_keywords(check_schema(schema, param=""))
    except (InvalidRequestError, TypeError, ValueError, RecursionError):
        return False


def _has_plain_keywords(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return schema is True or schema is False
    if not schema.keys() <= keywords.SIMPLE or not isinstance(schema.get("type", "object"), str):
        return False
    if not all(isinstance(schema.get(keyword, []), list) for keyword in ("required", "enum")):
        return False
    properties = schema.get("properties", {}).values()
    parts = [*properties, schema.get("items", True), schema.get("additionalProperties", True)]
    return all(map(_has_plain_keywords, parts))


class _Reader:
    """Reads one schema. `where`: text for the messages, such as "of tool 'x'"."""

    def __init__(self, param: str, where: str) -> None:
        self._param = param
        self._schema = f"The JSON schema {where}".rstrip()
        self._has_references = False
        self._unknown: set[str] = set()

    def read(self, schema: Any) -> dict[str, Any] | bool:
        try:
            text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError):
            raise self._error("is not JSON, or nested too deeply.") from None
        if size > MAX_SCHEMA_BYTES:
            raise self._error(f"has {size} bytes; at most {MAX_SCHEMA_BYTES} are allowed.")
        self._has_references = '"$ref"' in text
        return self._schema_at(schema, "#", 0)

    def _schema_at(self, schema: Any, path: str, depth: int) -> dict[str, Any] | bool:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise self._error(f"must be an object or a boolean at {path}.")
        if depth > MAX_SCHEMA_DEPTH:
            raise self._error(f"is nested more than {MAX_SCHEMA_DEPTH} levels deep.")
        schema = _with_numeric_bounds(schema)
        read: dict[str, Any] = {}
        for keyword, value in schema.items():
            if self._says_nothing(keyword, value, path, schema):
                continue
            read[keyword] = self._value(keyword, value, f"{path}/{keyword}", depth + 1)
        return _with_narrowed_format(read)

    def _says_nothing(self, keyword: str, value: Any, path: str, schema: Mapping[str, Any]) -> bool:
        if keyword in {"$id", "id"}:  # these change the meaning of references
            if path == "#" or not self._has_references:
                return True
            raise self._error(f"uses {keyword!r} (at {path}), which is not supported.")
        if keyword == "format":
            return not _may_be_string(schema) or self._is_unknown(
                value, keywords.FORMATS, "format", path
            )
        if keyword in keywords.UNSUPPORTED:
            return keyword in keywords.NO_CONSTRAINT and value == keywords.NO_CONSTRAINT[keyword]
        return self._is_unknown(keyword, keywords.SUPPORTED, "keyword", path)

    def _is_unknown(self, word: Any, known: tuple[str, ...], what: str, path: str) -> bool:
        """Whether no draft has this word; raises if the word is close to a known one."""
        if not isinstance(word, str) or word in known or word in keywords.UNSUPPORTED_FORMATS:
            return False
        if word.startswith(("_", "x-")) or len(word) > MAX_MISSPELT_CHARACTERS:
            return True
        self._unknown.add(word)
        if len(self._unknown) > MAX_UNKNOWN_WORDS:
            raise self._error(f"has more than {MAX_UNKNOWN_WORDS} keywords that no draft knows.")
        if near := _nearest(word, known):
            raise self._error(f"has the {what} {word!r} (at {path}); did you mean {near!r}?")
        return True

    def _value(self, keyword: str, value: Any, path: str, depth: int) -> Any:
        if keyword in keywords.SCHEMA_MAPS:
            return self._map(value, path, depth)
        if keyword in keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
            return self._list(value, path, depth)
        if keyword in keywords.ONE_SCHEMA:
            return self._schema_at(value, path, depth)
        if keyword not in keywords.VALUES:
            raise self._error(f"uses {keyword!r} (at {path}), which is not supported.")
        if (check := _CHECKS.get(keyword)) is not None and (problem := check(value)) is not None:
            raise self._error(f"{problem} (at {path}).")
        return value

    def _map(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise self._error(f"must have an object at {path}.")
        for name in value:
            if path.endswith("/patternProperties") and (problem := _check_pattern(name)):
                raise self._error(f"{problem} (at {path}).")
        return {
            name: self._schema_at(item, f"{path}/{name}", depth) for name, item in value.items()
        }

    def _list(self, value: Any, path: str, depth: int) -> list[Any]:
        if not isinstance(value, list):
            raise self._error(f"must have a list at {path}.")
        return [self._schema_at(item, f"{path}/{i}", depth) for i, item in enumerate(value)]

    def _error(self, text: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._schema} {text}", param=self._param)


@functools.lru_cache(maxsize=1024)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    """The known word closest to `word`, or None.

    Cached, because the same few words (`description`, `title`) occur in every property.
    """
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.85)), None)


def _with_narrowed_format(schema: dict[str, Any]) -> dict[str, Any]:
    pattern = keywords.NARROWED_FORMATS.get(str(schema.get("format")))
    if pattern is None:
        return schema
    if "pattern" not in schema:
        return {**schema, "pattern": pattern}
    return {**schema, "allOf": [*schema.get("allOf", ()), {"type": "string", "pattern": pattern}]}


def _with_numeric_bounds(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert draft 4's `"minimum": 5, "exclusiveMinimum": true` to `"exclusiveMinimum": 5`."""
    rewritten = dict(schema)
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := schema.get(exclusive), bool):
            del rewritten[exclusive]
            if flag and bound in rewritten:
                rewritten[exclusive] = rewritten.pop(bound)
    return rewritten


def _may_be_string(schema: Mapping[str, Any]) -> bool:
    """Whether the schema allows strings. Only for strings is `format` a constraint; for a number a
    format such as `int64` describes its storage.
    """
    types = schema.get("type", "string")
    return "string" in (types if isinstance(types, list) else [types])


def _check_reference(value: Any) -> str | None:
    if isinstance(value, str) and value.startswith("#"):
        return None
    return f"refers to {value!r}; only references inside it, such as '#/$defs/name', are supported"


def _check_type(value: Any) -> str | None:
    names = value if isinstance(value, list) else [value]
    unknown = [name for name in names if name not in keywords.TYPES]
    if not unknown and names:
        return None
    return (
        f"has the type {unknown[0] if unknown else value!r}; types are {', '.join(keywords.TYPES)}"
    )


def _check_format(value: Any) -> str | None:
    if value in keywords.FORMATS:
        return None
    known = ", ".join(keywords.FORMATS)
    return f"has the format {value!r}, which is not supported; use one of {known}"


def _check_pattern(value: Any) -> str | None:
    if not isinstance(value, str):
        return "has a pattern that is not a string"
    if len(value) > MAX_PATTERN_CHARACTERS:
        return f"has a pattern of more than {MAX_PATTERN_CHARACTERS} characters"
    return "has a pattern that ends in the middle of an escape" if ends_escaping(value) else None


def ends_escaping(pattern: str) -> bool:
    """Whether a pattern ends with an incomplete escape, which the grammar's builder would drop."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "$ref": _check_reference,
    "type": _check_type,
    "format": _check_format,
    "pattern": _check_pattern,
}
