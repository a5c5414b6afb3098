"""Three versions of Kubernetes know every field of the chart and of the operator's objects."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from charts.test_network import INGRESS, ROUTE
from charts.test_pods import PLACED, children, config_of

pytestmark = pytest.mark.cluster
Render = Callable[..., list[dict[str, Any]]]
SCHEMAS = Path(__file__).parent / "kubernetes"
ROOT = Path(__file__).parents[2]
VERSIONS = ("1.30", "1.33", "1.37")
OURS = {"yaie.dev/v1alpha1 InferenceModel"}  # the API server's own tests are in tests/api
FULL = (
    *PLACED,
    *INGRESS,
    *ROUTE,
    *(f"monitoring.{part}.enabled=true" for part in ("podMonitors", "rules", "dashboards")),
    "monitoring.serviceMonitor.enabled=true",
    'networkPolicies.clients=[{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]',
)


@cache
def validators(version: str) -> dict[str, jsonschema_rs.Validator]:
    """One for each kind that this version, the Gateway API or the Prometheus Operator has."""
    found: dict[str, jsonschema_rs.Validator] = {}
    for name in (f"v{version}", "custom"):
        schemas = json.loads((SCHEMAS / f"{name}.json").read_text())
        for kind, schema in schemas["kinds"].items():
            whole = {**schema, "$defs": schemas["$defs"]}
            found[kind] = jsonschema_rs.validator_for(whole)
    return found


def problems(objects: list[dict[str, Any]], version: str) -> list[str]:
    known = validators(version)
    found = []
    for obj in objects:
        kind = f"{obj['apiVersion']} {obj['kind']}"
        if kind in OURS:
            continue
        for error in known[kind].iter_errors(obj):
            path = ".".join(map(str, error.instance_path))
            found.append(f"{kind} {obj['metadata']['name']}: {path}: {error.message}")
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", [(), FULL], ids=["defaults", "everything"])
def test_the_version_knows_every_field(
    render: Render, version: str, settings: tuple[str, ...]
) -> None:
    objects = render(*settings, tests=True, flags=("--kube-version", version))
    assert problems(objects, version) == []
    assert problems(children(config_of(objects)), version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_would_be_found(version: str) -> None:
    path = ROOT / "manifests" / "install.yaml"
    objects = [one for one in yaml.safe_load_all(path.read_text()) if one]
    assert problems(objects, version) == []
    (operator,) = (one for one in objects if one["kind"] == "Deployment")
    operator["spec"]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    (found,) = problems(objects, version)
    assert "imagePulPolicy" in found


def test_an_older_kubernetes_is_refused(render: Render) -> None:
    with pytest.raises(ValueError, match="incompatible with Kubernetes"):
        render(flags=("--kube-version", "1.29"))
