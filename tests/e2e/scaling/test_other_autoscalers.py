"""The HPA of Kubernetes, and the HPA that KEDA makes, scale a model without spec.autoscaling.

The manifests are those of docs/autoscaling.md; the metrics adapter beside them is a double that
reads the real router.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.scaling.metrics_adapter import GROUP, VERSION, adapter
from e2e.support import ROOT, Demo, until
from fakes.streaming_load import Load
from yaie_api import names
from yaie_api.metrics import ROUTER_IN_FLIGHT

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "autoscaling.md"
IN_FLIGHT = ROUTER_IN_FLIGHT.name
FOUND = "ValidMetricFound"
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
"""The default waits five minutes; this test does not."""


def documented(kind: str) -> dict[str, Any]:
    """The manifest of a kind that docs/autoscaling.md shows."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = (one for one in map(yaml.safe_load, blocks) if one.get("kind") == kind)
    return dict(found)


def of_the_hpa() -> dict[str, Any]:
    hpa = documented("HorizontalPodAutoscaler")
    hpa["spec"]["metrics"][0]["external"]["target"]["averageValue"] = "2"
    return hpa


def of_keda() -> dict[str, Any]:
    """The HPA that KEDA makes of the documented ScaledObject."""
    scaled = documented("ScaledObject")
    spec, name = scaled["spec"], scaled["metadata"]["name"]
    (trigger,) = spec["triggers"]
    assert IN_FLIGHT in trigger["metadata"]["query"]
    selector = {"matchLabels": {"scaledobject.keda.sh/name": name}}
    value = trigger["metadata"]["threshold"]
    external = {
        "metric": {"name": f"s0-{trigger['type']}", "selector": selector},
        "target": {"type": trigger["metricType"], "averageValue": value},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}"},
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": external}],
        },
    }


@contextmanager
def scaling(demo: Demo, hpa: dict[str, Any]) -> Iterator[str]:
    """The HPA, changing at once and up to two engines, while the block runs. Yields its name."""
    hpa["metadata"]["namespace"] = demo.namespace
    hpa["spec"] |= {"maxReplicas": 2, "behavior": AT_ONCE}
    demo.cluster.kubectl.apply(hpa)
    name = hpa["metadata"]["name"]
    try:
        yield name
    finally:
        demo.cluster.kubectl("delete", "hpa", name, "-n", demo.namespace)


def active(demo: Demo, hpa: str) -> str:
    """Why the HPA's condition ScalingActive is as it is. It is written after the scale."""
    found = demo.cluster.kubectl.get("hpa", hpa, "-n", demo.namespace)
    conditions = found.get("status", {}).get("conditions") or []
    return next((one["reason"] for one in conditions if one["type"] == "ScalingActive"), "")


def in_flight(demo: Demo) -> float:
    """Requests in flight, as the routers tell them on their metrics port."""
    kubectl, place = demo.cluster.kubectl, demo.namespace
    chosen = ("-n", place, "-l", f"{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}")
    pods = [pod["metadata"]["name"] for pod in kubectl.get("pods", *chosen)["items"]]
    port, pages = names.ROUTER_METRICS_PORT, f"/api/v1/namespaces/{place}/pods"
    text = "".join(kubectl("get", "--raw", f"{pages}/{pod}:{port}/proxy/metrics") for pod in pods)
    values = re.findall(rf'^{IN_FLIGHT}{{[^}}]*model="demo"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, values))


def test_the_hpa_and_kedas_hpa_drive_the_scale_subresource(demo: Demo, tmp_path: Path) -> None:
    if not demo.cluster.node_ports:
        pytest.skip("a cluster of the user does not reach the adapter of this process")
    assert "autoscaling" not in demo.get()["spec"]
    kubectl = demo.cluster.kubectl
    with demo.client() as client:
        port = client.base_url.port or 80
        metrics = {
            (IN_FLIGHT, "model=demo"): lambda: in_flight(demo),
            ("s0-prometheus", "scaledobject.keda.sh/name=demo"): lambda: in_flight(demo),
        }
        with adapter(demo.namespace, tmp_path, metrics) as objects:
            kubectl.apply(*objects)
            api = f"apiservice/{VERSION}.{GROUP}"
            try:
                kubectl("wait", "--for=condition=Available", api, "--timeout=30s")
                with scaling(demo, of_the_hpa()) as hpa, Load(port).running(clients=4) as load:
                    until(lambda: demo.get()["spec"]["replicas"] == 2, "two by the HPA")
                    until(lambda: demo.get()["status"]["ready"] == "2/2", "two engines")
                    until(lambda: active(demo, hpa) == FOUND, "the HPA to say that it has a metric")
                assert load.failures == []
                with scaling(demo, of_keda()) as hpa:
                    until(lambda: demo.get()["spec"]["replicas"] == 1, "one by KEDA's HPA")
                    until(lambda: active(demo, hpa) == FOUND, "KEDA's HPA to say the same")
            finally:
                kubectl("delete", api)
    assert "scaling" not in demo.get()["status"], "the operator's own autoscaler stays out of it"
    until(lambda: len(demo.pods()) == 1, "one engine")
    demo.wait_ready()
