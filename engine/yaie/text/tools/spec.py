"""A request's tools: the functions, and whether one must be called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

NO_ARGUMENTS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
_OPENS_OBJECT: Final = frozenset(
    {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that the model may call.

    `parameters`: the JSON schema of its arguments. `input_grammar`: Lark of what its argument
    `input` may be, as written inside a JSON string; None: `parameters` say it all.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool = False
    input_grammar: str | None = None

    @property
    def arguments_schema(self) -> Mapping[str, Any]:
        """The schema that grammars enforce, which is always an object.

        A schema that lists its properties allows no others. This is stricter than JSON Schema, but
        valid, and keeps weak models from inventing parameters.
        """
        schema = self.parameters
        if not schema:
            return NO_ARGUMENTS
        if _OPENS_OBJECT & schema.keys() or not _lists_required(schema):
            return schema
        return {"type": "object", **schema, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`auto`: the model decides; `required`: at least one call; `named`: a call of `name`."""

    mode: Literal["auto", "required", "named"] = "auto"
    name: str | None = None


def _lists_required(schema: Mapping[str, Any]) -> bool:
    """Whether all required properties are listed; if not, other properties must stay allowed."""
    properties, required = schema.get("properties"), schema.get("required", [])
    listed = properties if isinstance(properties, Mapping) else {}
    return isinstance(required, list) and all(name in listed for name in required)
