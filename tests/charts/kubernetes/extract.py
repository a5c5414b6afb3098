"""Writes the schemas beside it, from published ones; README.md says which.

    python extract.py kubernetes_validate-*.whl CRD.yaml …

Kept is what the kinds of the chart and the operator need, without descriptions; an object with
fields that the schema does not name is refused.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
VERSIONS = ("1.30", "1.33", "1.37")
KINDS = (
    "clusterrole-rbac-v1", "clusterrolebinding-rbac-v1", "configmap-v1",
    "customresourcedefinition-apiextensions-v1", "deployment-apps-v1", "ingress-networking-v1",
    "job-batch-v1", "namespace-v1", "networkpolicy-networking-v1", "persistentvolumeclaim-v1",
    "pod-v1", "poddisruptionbudget-policy-v1", "role-rbac-v1", "rolebinding-rbac-v1", "secret-v1",
    "service-v1", "serviceaccount-v1",
)  # fmt: skip
FOLDER = "kubernetes_validate/kubernetes-json-schema/v{}.0-local-strict"
DROPPED = ("description", "$schema", "$id", "x-kubernetes-group-version-kind")


def main(wheel: str, *crds: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for version in VERSIONS:
            _write(f"v{version}", _of_kubernetes(archive, FOLDER.format(version)))
    _write("custom", _of_crds([yaml.safe_load(Path(path).read_text()) for path in crds]))


def _of_kubernetes(archive: zipfile.ZipFile, folder: str) -> dict[str, Any]:
    every = json.loads(archive.read(f"{folder}/_definitions.json"))
    every = every.get("$defs") or every["definitions"]
    schemas: dict[str, Any] = {}
    for name in KINDS:
        schema = json.loads(archive.read(f"{folder}/{name}.json"))
        (kind,) = schema["x-kubernetes-group-version-kind"]
        api = "/".join(part for part in (kind["group"], kind["version"]) if part)
        schemas[f"{api} {kind['kind']}"] = _slim(schema)
    needed: dict[str, Any] = {}
    left = list(_references(schemas))
    while left:
        name = left.pop()
        if name not in needed:
            needed[name] = _slim(every[name])
            left += _references(needed[name])
    return {"kinds": schemas, "$defs": dict(sorted(needed.items()))}


def _references(schema: Any) -> Iterator[str]:
    for found in re.finditer(r'"#/\$defs/([^"]+)"', json.dumps(schema)):
        yield found[1]


def _slim(schema: Any) -> Any:
    """The schema without prose, its references pointing into the same file."""
    if isinstance(schema, list):
        return [_slim(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":  # a field may be called description
            kept[key] = {name: _slim(each) for name, each in value.items()}
        elif key == "$ref":
            kept[key] = f"#/$defs/{value.rpartition('/')[2]}"
        elif key not in DROPPED:
            kept[key] = _slim(value)
    return kept


def _of_crds(crds: list[dict[str, Any]]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for crd in crds:
        names = crd["spec"]["names"]
        for version in crd["spec"]["versions"]:
            api = f"{crd['spec']['group']}/{version['name']}"
            schema = version["schema"]["openAPIV3Schema"]
            strict = _strict(_slim(schema))
            strict["properties"]["metadata"] = {"type": "object"}
            if version["storage"]:
                schemas[f"{api} {names['kind']}"] = strict
    return {"kinds": schemas, "$defs": {}}


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: _strict(value) for key, value in schema.items() if not key.startswith("x-")}
    kept.pop("format", None)
    if isinstance(kept.get("properties"), Mapping) and kept.get("type") == "object":
        kept.setdefault("additionalProperties", False)
    return kept


def _write(name: str, schemas: Mapping[str, Mapping[str, Any]]) -> None:
    """One kind or definition a line, so that a difference can be read."""
    parts = []
    for part, of in schemas.items():
        lines = (f"{json.dumps(key)}:{_compact(each)}" for key, each in of.items())
        parts.append(f'"{part}":{{\n' + ",\n".join(lines) + "\n}")
    (HERE / f"{name}.json").write_text("{" + ",\n".join(parts) + "}\n")


def _compact(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    main(*sys.argv[1:])
