"""Weights of an image: a node that mounts it serves them, one that cannot is told apart."""

from typing import Any

import pytest

from cluster import images
from e2e.support import Cluster, Demo, until

pytestmark = pytest.mark.e2e

INSIDE = "opt/yaie/lib/yaie/checkpoint/builtin/yaie-demo"


def model(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {
            "model": {"source": f"oci://{images.image('engine')}//{INSIDE}"},
            "cache": {"mode": "image"},
            "resources": {"cpu": "100m", "memory": "2Gi"},
        },
    }


def test_an_image_is_mounted_or_the_status_names_the_runtime_that_cannot(cluster: Cluster) -> None:
    if not cluster.node_ports:
        pytest.skip("this names an image that only the test node has")
    with cluster.namespace("image") as namespace:
        demo = Demo(cluster, namespace)
        cluster.kubectl.apply(model(namespace))
        info = cluster.kubectl.get("nodes")["items"][0]["status"]["nodeInfo"]
        version = info["containerRuntimeVersion"].removeprefix("containerd://")
        if tuple(map(int, version.partition("~")[0].split(".")[:2])) >= (2, 1):
            demo.wait_ready()
            return
        failed = "ConfigError"
        until(lambda: demo.condition("EnginesReady").get("reason") == failed, failed, timeout_s=60)
        told = demo.condition("EnginesReady")["message"]
        assert "runtime of its node mounts no images as volumes; update it" in told
