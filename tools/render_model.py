"""Writes docs/inferencemodel.md from the CRD: what `kubectl explain` says, for those without a
cluster.

`--check` writes nothing and fails when the page is stale.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
import pages

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "inferencemodel.md"
HEAD = """\
# InferenceModel

Every field of an `InferenceModel`, on a cluster and under `yaie up`. For people who write one.
`kubectl explain ym.spec` says the same. `kubectl apply` and `yaie up` refuse a field that is not
here, and a wrong value with a message that says what to write. `tools/render_model.py` writes this
page from the CRD; do not edit it.

```
apiVersion: yaie.dev/v1alpha1
kind: InferenceModel
metadata:
  name: demo
spec:
  model:
    source: builtin://yaie-demo
```
"""
SECTIONS = {
    "spec": """\
Entries of a list are written `[]`. `yaie up` takes `file:///PATH` too; there, every path in the
source, in `engine.args` and in `engine.env` is this machine's and stays as it is written. A file
beside the weights of a `pvc://` source is `$(YAIE_MODEL_FOLDER)/FILE` in `engine.args`, there and
on a cluster. One machine has no scheduler: `nodeSelector`, `tolerations`, classes and affinities
have no effect under `yaie up`; it refuses `gpu.type` and volumes.

Each model has a PodDisruptionBudget of its name, by which a drain of nodes evicts one engine at a
time.

`podTemplate` has the form of a Pod's template. Its fields marked *Refused* are known, so that the
answer to them says what to write. A claim keeps what was downloaded from Hugging Face:

```
podTemplate:
  spec:
    volumes: [{name: hub, persistentVolumeClaim: {claimName: huggingface}}]
    containers:
      - name: engine
        volumeMounts: [{name: hub, mountPath: /cache/huggingface}]
```""",
    "status": """\
What the operator observed. `yaie ps -o yaml` and `kubectl get -o yaml` show it. When an engine
cannot start, the message of the conditions `EnginesReady` and `Ready` holds the sentence that the
engine left as its container's termination message.""",
}


def page() -> str:
    """The whole page."""
    crd = yaml.safe_load((ROOT / "manifests" / "crd.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    parts = [HEAD]
    for name, words in SECTIONS.items():
        parts += [f"## {name}\n", f"{words}\n", "| field | type | default | meaning |"]
        parts += ["|---|---|---|---|", *rows(schema["properties"][name], f"{name}."), ""]
    return "\n".join(parts).rstrip() + "\n"


def rows(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    """A row for each field below a place, and for the fields below it."""
    for name, field in schema.get("properties", {}).items():
        if field["description"].startswith("Refused: ") and "properties" not in field:
            yield f"| `{at}{name}` | | | *Refused*{field['description'].removeprefix('Refused')} |"
            continue
        default = field.get("default")
        shown = "" if default in (None, "", {}) else f"`{json.dumps(default)}`"
        if name in schema.get("required", ()):
            shown = "required"
        # After a line break: limits and default, which have columns here.
        meaning = field["description"].partition("\n")[0].replace("|", "\\|")
        yield f"| `{at}{name}` | {kind_of(field)} | {shown} | {meaning} |"
        inner = field["items"] if field.get("type") == "array" else field
        yield from rows(inner, f"{at}{name}{'[].' if inner is not field else '.'}")


def kind_of(field: Mapping[str, Any]) -> str:
    """The type of a field, with its choices or its range."""
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    low, high = field.get("minimum"), field.get("maximum")
    limits = [f"≥ {low}"] * (low is not None) + [f"≤ {high}"] * (high is not None)
    return f"{field['type']} ({', '.join(limits)})" if limits else str(field["type"])


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))
