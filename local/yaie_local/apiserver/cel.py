"""Evaluates the CRD's CEL rules (`x-kubernetes-validations`) with cel-python.

The rules use only core functions and `sum` of Kubernetes' list library, so that they mean the same
here and in the API server; one table of test cases is run against both. A rule that uses `oldSelf`
is a transition rule: it is checked only if an old value exists.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import celpy
from celpy import celtypes

from yaie_local.apiserver.schema import Schema, children

_TRANSITION: Final = re.compile(r"\boldSelf\b")


class _Absent:
    """Type of the marker for a missing old value."""


ABSENT: Final = _Absent()


def violations(schema: Schema, value: Any, old: Any = ABSENT, path: str = "") -> Iterator[str]:
    """All violated rules of a value and its children, as `path: Invalid value: message`."""
    if rules := schema.get("x-kubernetes-validations"):
        names = {"self": to_cel(schema, value)}
        if old is not ABSENT:
            names["oldSelf"] = to_cel(schema, old)
        for rule in rules:
            broken = _broken(rule, names)
            if broken is not None:
                yield f"{path or '<root>'}: Invalid value: {broken}"
    for key, child, item, where in children(schema, value, path):
        yield from violations(child, item, _old_child(schema, old, key, item), where)


def _broken(rule: Mapping[str, Any], names: Mapping[str, Any]) -> str | None:
    """The message of a violated rule; None if the rule holds or does not apply."""
    if _TRANSITION.search(rule["rule"]) and "oldSelf" not in names:
        return None
    result = _program(rule["rule"]).evaluate(names)
    if isinstance(result, celtypes.BoolType) and result:
        return None
    if "messageExpression" in rule:
        return str(_program(rule["messageExpression"]).evaluate(names))
    return str(rule.get("message", f"failed rule: {rule['rule']}"))


@functools.cache
def _program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions={"sum": _sum})


def _sum(numbers: celtypes.ListType) -> celtypes.IntType:
    return celtypes.IntType(sum(int(number) for number in numbers))


def to_cel(schema: Schema, value: Any) -> Any:
    """Convert a JSON value to CEL by its schema: a `number` is a double even if written as 2."""
    if schema.get("type") == "number" and isinstance(value, int):
        return celtypes.DoubleType(value)
    if isinstance(value, dict):
        described = {key: child for key, child, _, _ in children(schema, value)}
        return celtypes.MapType(
            {celtypes.StringType(k): to_cel(described.get(k, {}), v) for k, v in value.items()}
        )
    if isinstance(value, list):
        items = schema.get("items", {})
        return celtypes.ListType([to_cel(items, item) for item in value])
    return celpy.json_to_cel(value)


def _old_child(schema: Schema, old: Any, key: str | int, item: Any) -> Any:
    """The old value of a child: by name in objects, by key in list maps, else ABSENT."""
    if isinstance(old, dict):
        return old.get(key, ABSENT)
    keys = schema.get("x-kubernetes-list-map-keys")
    if isinstance(old, list) and keys and isinstance(item, dict):
        same = (o for o in old if all(o.get(k) == item.get(k) for k in keys))
        return next(same, ABSENT)
    return ABSENT
