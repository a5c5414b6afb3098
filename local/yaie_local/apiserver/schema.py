"""Structural schemas as the API server applies them: unknown fields, defaults and validation. Pure.

Only the keywords that our CRD uses are implemented. Messages have the API server's wording, so a
user reads the same message on this machine and on a cluster.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Schema = Mapping[str, Any]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


_END: Final = re.compile(r"\$$")
"""A pattern's last `$`: there Python lets a line break follow, and the API server does not."""


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields that the schema does not define, e.g. `spec.model.sorce`."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = _property(schema, key)
            if child is None:
                yield join(path, key)
            else:
                yield from unknown_fields(child, item, join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(schema.get("items", {}), item, f"{path}[{index}]")


def with_defaults(schema: Schema, value: Any) -> Any:
    """The value with the schema's defaults for absent properties, at every level."""
    if isinstance(value, dict):
        return _object_with_defaults(schema, value)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [with_defaults(items, item) for item in value]
    return value


def without_nulls(schema: Schema, value: Any) -> Any:
    """The value without nulls in properties that have a default: there null means "not given"."""
    if isinstance(value, dict):
        described = {key: _property(schema, key) or {} for key in value}
        return {
            key: without_nulls(described[key], item)
            for key, item in value.items()
            if item is not None or "default" not in described[key]
        }
    if isinstance(value, list):
        return [without_nulls(schema.get("items", {}), item) for item in value]
    return value


def errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """All violations of a value and its children, as `path: problem`."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _must_be("integer,string", value, path)
        yield from _value_errors(schema, value, path)
        return
    wrong = _type_error(schema, value, path)
    if wrong is not None:
        yield wrong
        return
    yield from _value_errors(schema, value, path)
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list):
        yield from _array_errors(schema, value, path)


def children(
    schema: Schema, value: Any, path: str = ""
) -> Iterator[tuple[str | int, Schema, Any, str]]:
    """The direct children of a value that a schema describes: key, schema, value, path."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = _property(schema, key)
            if child is not None:
                yield key, child, item, join(path, key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield index, schema.get("items", {}), item, f"{path}[{index}]"


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _property(schema: Schema, key: str) -> Schema | None:
    """The schema of a property; None if the property is unknown."""
    known: Schema | None = schema.get("properties", {}).get(key)
    if known is not None:
        return known
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    free = extra is True or schema.get("x-kubernetes-preserve-unknown-fields")
    return {"x-kubernetes-preserve-unknown-fields": True} if free else None


def _object_with_defaults(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    absent = {
        key: json.loads(json.dumps(child["default"]))
        for key, child in schema.get("properties", {}).items()
        if "default" in child and key not in value
    }
    full = {**value, **absent}
    return {key: with_defaults(_property(schema, key) or {}, item) for key, item in full.items()}


def _type_error(schema: Schema, value: Any, path: str) -> str | None:
    kind = schema.get("type")
    if kind is None or (value is None and schema.get("nullable")):
        return None
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if kind == "integer" and isinstance(value, float):
        fits = value.is_integer()
    return None if fits else _must_be(kind, value, path)


def _must_be(kind: str, value: Any, path: str) -> str:
    got = _type_name(value)
    return f'{path}: Invalid value: "{got}": {path} in body must be of type {kind}: "{got}"'


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next(name for name, types in _TYPES.items() if isinstance(value, types))


def _value_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(json.dumps(choice) for choice in schema["enum"])
        yield f"{path}: Unsupported value: {json.dumps(value)}: supported values: {choices}"
    if isinstance(value, str):
        yield from _string_errors(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)


def _string_errors(schema: Schema, value: str, path: str) -> Iterator[str]:
    if len(value) > schema.get("maxLength", len(value)):
        yield f"{path}: Too long: may not be more than {schema['maxLength']} bytes"
    if len(value) < schema.get("minLength", 0):
        yield (
            f"{path}: Invalid value: {json.dumps(value)}: {path} in body should be at least "
            f"{schema['minLength']} chars long"
        )
    pattern = schema.get("pattern")
    if pattern is not None and re.search(_END.sub(r"\\Z", pattern), value) is None:
        yield (
            f"{path}: Invalid value: {json.dumps(value)}: {path} in body should match '{pattern}'"
        )


def _number_errors(schema: Schema, value: float, path: str) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    strict_low, strict_high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    body = f"{path}: Invalid value: {json.dumps(value)}: {path} in body should be"
    if not math.isfinite(value):  # YAML's .nan and .inf, which JSON does not have
        yield f"{body} a finite number"
        return
    if low is not None and (value < low or (strict_low and value == low)):
        yield f"{body} greater than {'' if strict_low else 'or equal to '}{low}"
    if high is not None and (value > high or (strict_high and value == high)):
        yield f"{body} less than {'' if strict_high else 'or equal to '}{high}"


def _object_errors(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{join(path, key)}: Required value"
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: Too many: {len(value)}: must have at most {schema['maxProperties']} items"
    for _, child, item, where in children(schema, value, path):
        yield from errors(child, item, where)


def _array_errors(schema: Schema, value: Sequence[Any], path: str) -> Iterator[str]:
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: Too many: {len(value)}: must have at most {schema['maxItems']} items"
    if len(value) < schema.get("minItems", 0):
        yield (
            f"{path}: Invalid value: {len(value)}: {path} in body should have at least "
            f"{schema['minItems']} items"
        )
    yield from _duplicate_errors(schema, value, path)
    for _, child, item, where in children(schema, value, path):
        yield from errors(child, item, where)


def _duplicate_errors(schema: Schema, value: Sequence[Any], path: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys")
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        mark = {k: item.get(k) for k in keys or ()} if isinstance(item, dict) else item
        if mark in seen:
            yield f"{path}[{index}]: Duplicate value: {json.dumps(mark)}"
        seen.append(mark)
