"""What the API server does to an InferenceModel before it stores one: defaults, structural schema,
CEL. The local adapter admits objects with it; one table of cases is run against it and against a
real API server, so that the two cannot drift apart.

CEL runs in cel-python with core functions only.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import celpy

from yaie_operator.cluster import Object

Schema = Mapping[str, Any]
_RULES: Final = "x-kubernetes-validations"


class Admission:
    """Checks objects against the one version of a CRD (as `yaie_api.crd.render` gives it)."""

    def __init__(self, crd: Mapping[str, Any]) -> None:
        version = crd["spec"]["versions"][0]
        self._schema: Schema = version["schema"]["openAPIV3Schema"]

    def default(self, obj: Object) -> dict[str, Any]:
        """A copy with the schema's defaults filled in."""
        filled: dict[str, Any] = _filled(obj, self._schema)
        return filled

    def violations(self, new: Object, old: Object | None = None) -> list[str]:
        """Everything wrong with a (defaulted) object, `field: message` each; [] when admitted.

        `old` is the stored object on updates: transition rules compare with it. CEL runs only on
        an object of the right shape, as in the API server.
        """
        shape = list(_shape(new, self._schema, ""))
        return shape or list(_cel(new, old, self._schema, ""))


def _filled(value: Any, schema: Schema) -> Any:
    if isinstance(value, Mapping):
        properties: Mapping[str, Schema] = schema.get("properties", {})
        defaults = {k: s["default"] for k, s in properties.items() if "default" in s}
        return {
            key: _filled(item, properties.get(key, {}))
            for key, item in {**defaults, **value}.items()
        }
    if isinstance(value, list):
        return [_filled(item, schema.get("items", {})) for item in value]
    return value


def _shape(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Findings of the structural schema, outermost first."""
    if not _has_type(value, schema):
        expected = schema.get("type", "integer or string")
        yield f"{path or 'the object'}: {_kind_of(value)} given, {expected} expected"
        return
    yield from (f"{path}: {finding}" for check in _CHECKS for finding in check(value, schema))
    if isinstance(value, Mapping):
        yield from _object_shape(value, schema, path)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _shape(item, schema.get("items", {}), f"{path}[{i}]")


def _object_shape(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[str]:
    properties: Mapping[str, Schema] | None = schema.get("properties")
    values: Schema | None = schema.get("additionalProperties")
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{_join(path, key)}: this field is required"
    for key, item in value.items():
        if properties is not None and key in properties:
            yield from _shape(item, properties[key], _join(path, key))
        elif values is not None:
            yield from _shape(item, values, _join(path, key))
        elif properties is not None:
            yield f"{_join(path, key)}: unknown field"


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    types = _TYPES.get(schema.get("type", ""), (object,))
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _kind_of(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _enum(value: Any, schema: Schema) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is not one of {', '.join(map(str, schema['enum']))}"


def _range(value: Any, schema: Schema) -> Iterator[str]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if value < schema.get("minimum", value):
        yield f"{value} is less than {schema['minimum']}"
    if value > schema.get("maximum", value):
        yield f"{value} is more than {schema['maximum']}"


def _string(value: Any, schema: Schema) -> Iterator[str]:
    if not isinstance(value, str):
        return
    if len(value) > schema.get("maxLength", len(value)):
        yield f"longer than {schema['maxLength']} characters"
    if len(value) < schema.get("minLength", 0):
        yield f"shorter than {schema['minLength']} characters"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r} does not match {schema['pattern']}"


def _size(value: Any, schema: Schema) -> Iterator[str]:
    if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        yield f"more than {schema['maxItems']} items"
    if isinstance(value, Mapping) and len(value) > schema.get("maxProperties", len(value)):
        yield f"more than {schema['maxProperties']} entries"


def _unique(value: Any, schema: Schema) -> Iterator[str]:
    """List types `set` and `map`: no item, or no key of an item, twice."""
    if not isinstance(value, list) or "x-kubernetes-list-type" not in schema:
        return
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
    seen: list[Any] = []
    for item in value:
        identity = [item.get(key) for key in keys] if keys and isinstance(item, Mapping) else item
        if identity in seen:
            yield f"{identity!r} stands there twice"
        seen.append(identity)


_CHECKS: Final[tuple[Callable[[Any, Schema], Iterator[str]], ...]] = (
    _enum,
    _range,
    _string,
    _size,
    _unique,
)


def _cel(new: Any, old: Any, schema: Schema, path: str) -> Iterator[str]:
    """Messages of the CEL rules that fail, here and below."""
    for rule in schema.get(_RULES, ()):
        transition = "oldSelf" in rule["rule"]
        if (old is not None or not transition) and not _holds(rule["rule"], new, old):
            yield f"{path or 'metadata.name'}: {rule['message']}"
    if isinstance(new, Mapping):
        for key, child in _children(new, schema):
            before = old.get(key) if isinstance(old, Mapping) else None
            yield from _cel(new[key], before, child, _join(path, key))
    elif isinstance(new, list):
        for i, item in enumerate(new):
            yield from _cel(item, None, schema.get("items", {}), f"{path}[{i}]")


def _children(value: Mapping[str, Any], schema: Schema) -> Iterator[tuple[str, Schema]]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for key in value:
        if key in properties:
            yield key, properties[key]
        elif "additionalProperties" in schema:
            yield key, schema["additionalProperties"]


def _holds(rule: str, new: Any, old: Any) -> bool:
    context = {"self": celpy.json_to_cel(new)}
    if "oldSelf" in rule:
        context["oldSelf"] = celpy.json_to_cel(old)
    return bool(_program(rule).evaluate(context))


@cache
def _program(rule: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
