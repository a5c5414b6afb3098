"""The keywords and formats of JSON Schema: which are enforced, and what their values are."""

from collections.abc import Mapping
from typing import Any, Final

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
FORMATS: Final = (
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
)

ONE_SCHEMA: Final = frozenset({"items", "additionalItems", "additionalProperties"})
SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
VALUES: Final = frozenset(
    {
        *("type", "enum", "const", "$ref", "$anchor", "required", "pattern", "format"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
SIMPLE: Final = frozenset(
    {"type", "enum", "properties", "required", "additionalProperties", "items", "minItems"}
    | {"maxItems", "minimum", "maximum", "minLength", "maxLength"}
)
UNSUPPORTED: Final = frozenset(
    {
        *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems"),
        *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "nullable"),
        *("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
        *("$dynamicAnchor", "$recursiveAnchor", "extends", "disallow", "divisibleBy"),
    }
)
"""Keywords of any draft that constrain values and that grammars here do not express."""
UNSUPPORTED_FORMATS: Final = frozenset(
    {
        *("idn-email", "idn-hostname", "uri-reference", "iri", "iri-reference", "uri-template"),
        *("json-pointer", "relative-json-pointer", "regex"),
    }
)
NO_CONSTRAINT: Final[Mapping[str, Any]] = {
    "uniqueItems": False,
    "nullable": False,
    "unevaluatedProperties": True,
    "unevaluatedItems": True,
    "propertyNames": True,
    "not": False,
}
"""Values with which these otherwise unsupported keywords allow everything."""
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE: Final = (
    f"^(?:[0-9]{{4}}-(?:(?:0[13-9]|1[0-2])-[0-9]{{2}}|02-(?:[01][0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
NARROWED_FORMATS: Final = {
    "date": _DATE + "$",
    "date-time": _DATE + "[Tt][0-9]{2}:[0-9]{2}:[0-5]",
    "time": "^[0-9]{2}:[0-9]{2}:[0-5]",
    "email": r"^[^@]{1,64}@(?:[^.@]{1,63}\.){0,9}[^.@]{1,63}$",
    "hostname": "^.{1,253}$",
}
"""Patterns for what formats require besides their shape: existing days, lengths of names. Second 60
is excluded, because leap seconds exist at only a few times, which a grammar cannot express.
"""
SUPPORTED: Final = tuple(sorted(ONE_SCHEMA | SCHEMA_LISTS | SCHEMA_MAPS | VALUES))
