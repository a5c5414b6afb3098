"""Renders the CustomResourceDefinition of InferenceModel from `model.py`.

Pydantic's JSON schema becomes a structural schema: references are inlined, optional fields lose
null, defaults are kept, CEL rules get the API server's keys. `python -m yaie_api.resource.crd`
prints the CRD; `manifests/crd.yaml` is generated in this way.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

import yaml

from yaie_api import names
from yaie_api.resource.model import InferenceModelSpec, InferenceModelStatus
from yaie_api.resource.schema import CEL_KEY, REFUSED_KEY, WORDS, Part

NAME_RULES: Final = (
    {
        "rule": f"self.metadata.name.size() <= {names.MAX_NAME_LENGTH}",
        "message": f"metadata.name is longer than {names.MAX_NAME_LENGTH} characters; shorten it "
        "(clients may use a longer model.servedName)",
    },
    {
        "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "message": "metadata.name begins with a letter and holds lower-case letters, digits and "
        "'-' only; write qwen3-0-6b for qwen3-0.6b (and set model.servedName)",
    },
    {
        "rule": f"!self.metadata.name.startsWith('{names.RESERVED_NAME_PREFIX}')",
        "message": f"names that begin with {names.RESERVED_NAME_PREFIX} belong to the router; "
        "choose another metadata.name",
    },
)

COLUMNS: Final = (
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.source"},
    {"name": "Ready", "type": "string", "jsonPath": ".status.ready"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "GPU", "type": "integer", "jsonPath": ".spec.resources.gpu.count"},
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
    },
    {
        "name": "Context",
        "type": "integer",
        "jsonPath": ".status.model.contextLength",
        "priority": 1,
    },
    {
        "name": "Concurrency",
        "type": "number",
        "jsonPath": ".status.capacity.maxConcurrency",
        "priority": 1,
    },
    {"name": "Endpoint", "type": "string", "jsonPath": ".status.endpoint", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

_COPIED: Final = (
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)  # fmt: skip


def render(*, local: bool = False) -> dict[str, Any]:
    """The CRD as JSON. `local`: for `yaie up`, without `cluster_only` rules, which refuse sources
    on disk, and with `local_only` ones.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [_version(local=local)],
        },
    }


def _version(*, local: bool) -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema(local=local)},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas.current",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [dict(column) for column in COLUMNS],
    }


def root_schema(*, local: bool = False) -> dict[str, Any]:
    """The structural schema of a whole InferenceModel object."""
    return {
        "type": "object",
        "description": "One model, served by some engines, reachable by name through the router.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": names.API_VERSION},
            "kind": {"type": "string", "description": names.KIND},
            "metadata": {"type": "object"},
            "spec": _part(InferenceModelSpec, local=local),
            "status": _part(InferenceModelStatus, local=local),
        },
        CEL_KEY: [dict(rule) for rule in NAME_RULES],
    }


def _part(part: type[Part], *, local: bool) -> dict[str, Any]:
    schema = part.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}), local=local)


def _structural(
    schema: Mapping[str, Any], defs: Mapping[str, Any], *, local: bool
) -> dict[str, Any]:
    """Convert one node: resolve references and options, and keep only keys of the API server."""
    node = _resolve(schema, defs)
    out: dict[str, Any] = {key: node[key] for key in _COPIED if key in node}
    if "const" in node:
        out["enum"] = [node["const"]]
    if node.get("x-kubernetes-int-or-string"):
        out = _int_or_string(out)
    if "items" in node:
        out["items"] = _structural(node["items"], defs, local=local)
    if "properties" in node:
        out |= _object(node, defs, local=local)
    elif node.get("type") == "object":
        out["additionalProperties"] = _values(node, defs, local=local)
    if (default := _default(node)) is not None:
        out["default"] = default
    if cel := _rules(node, out, local=local):
        out[CEL_KEY] = cel
        if out.get("pattern") in WORDS:
            del out["pattern"]
    if "description" in out and (limits := _limits(out)):
        out["description"] += f"\n{limits}"
    return out


def _rules(node: Mapping[str, Any], out: Mapping[str, Any], *, local: bool) -> list[dict[str, str]]:
    """A node's own rules, after those that stand for a pattern or beside a minimum."""
    made = []
    if out.get("pattern") in WORDS:
        made.append(_form(out["pattern"], is_dynamic="anyOf" in out))
    if not float(out.get("minimum", 0)).is_integer():
        made.append(_least(out["minimum"]))
    own = (_cel(rule) for rule in node.get(CEL_KEY, ()) if _applies(rule, local=local))
    return [*made, *own]


def _limits(out: Mapping[str, Any]) -> str:
    """A field's limits and default as sentences: `kubectl explain` does not show them by itself."""
    pairs = (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " entries"),
    )
    said = [_range(out.get(low), out.get(high), what) for low, high, what in pairs]
    if out.get("default") not in (None, "", {}):
        said.append(f"Default: {json.dumps(out['default'])}.")
    return " ".join(filter(None, said))


def _range(low: float | None, high: float | None, what: str) -> str:
    if low is not None and high is not None:
        return f"From {low} to {high}{what}."
    if low is not None:
        return f"At least {low}{what}."
    return f"At most {high}{what}." if high is not None else ""


def _resolve(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `$ref` and the only non-null branch of `anyOf`; keys of the outer node win."""
    node = dict(schema)
    branches = [b for b in node.pop("anyOf", ()) if b.get("type") != "null"]
    if len(branches) > 1:
        raise TypeError(f"a union does not fit a structural schema: {branches}")
    for branch in branches:
        node = _resolve(branch, defs) | node
    if "$ref" in node:
        target = defs[node.pop("$ref").removeprefix("#/$defs/")]
        node = _resolve(target, defs) | node
    return node


def _object(node: Mapping[str, Any], defs: Mapping[str, Any], *, local: bool) -> dict[str, Any]:
    properties = {
        name: _structural(value, defs, local=local) for name, value in node["properties"].items()
    }
    for name, (kind, instead) in node.get(REFUSED_KEY, {}).items():
        properties[name] = {"description": f"Refused: {instead}.", **_ANYTHING[kind]}
    required = node.get("required")
    return {"properties": properties} | ({"required": list(required)} if required else {})


_FREE: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ANYTHING: Final[Mapping[str, dict[str, Any]]] = {
    "object": _FREE,
    "objects": {"type": "array", "maxItems": 64, "items": _FREE},
    "string": {"type": "string", "maxLength": 1024},
    "strings": {
        "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 1024},
    },
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
}  # fmt: skip
"""Schemas of refused fields: only fields with a type can be seen by a rule."""


def _values(node: Mapping[str, Any], defs: Mapping[str, Any], *, local: bool) -> dict[str, Any]:
    """Schema of a map's values. Pydantic writes a constrained key type as patternProperties."""
    patterns = node.get("patternProperties", {})
    value = next(iter(patterns.values())) if patterns else node["additionalProperties"]
    return _structural(value, defs, local=local)


def _int_or_string(out: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in out.items() if key not in {"type", "maxLength"}}
    return kept | {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }


def _default(node: Mapping[str, Any]) -> Any:
    """A scalar's own default; {} for an object whose fields all have defaults; else None.

    Empty lists and maps have no default, so that `kubectl get -o yaml` does not show many `[]`.
    """
    if "properties" in node and not node.get("required") and node.get("default") is not None:
        return {}
    default = node.get("default")
    return None if default in ([], {}) else default


def _applies(rule: Mapping[str, Any], *, local: bool) -> bool:
    return not rule["cluster_only" if local else "local_only"]


def _form(pattern: str, *, is_dynamic: bool) -> dict[str, str]:
    """The rule that stands for a pattern.

    `is_dynamic`: the value may be a number. Such a rule costs a tenth of what the API server allows
    all rules together, since it knows no longest length: none belongs into a list.
    """
    number = "type(self) == int || " if is_dynamic else ""
    return {"rule": f"{number}self.matches(r'{pattern}')", "message": f"write {WORDS[pattern]}"}


def _least(minimum: float) -> dict[str, str]:
    """The rule beside a fractional minimum, from which the API server cuts the fraction when it
    compares a value that is written without one: it takes 0 where the least is 0.05.
    """
    return {"rule": f"self >= {minimum}", "message": f"write a number of at least {minimum}"}


def _cel(rule: Mapping[str, Any]) -> dict[str, str]:
    return {"rule": rule["cel"], "message": rule["message"]}


def main() -> None:
    sys.stdout.write("# Generated by `python -m yaie_api.resource.crd`; do not edit.\n")
    yaml.safe_dump(render(), sys.stdout, sort_keys=False, width=100)


if __name__ == "__main__":
    main()
