"""An engine image of a registry that wants credentials: without them the status says what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster import images
from e2e.registry.private_registry import PASSWORD, USER, Registry, serving, with_own_id
from e2e.support import Cluster, Demo, until

pytestmark = pytest.mark.e2e

FIELD = "spec.podTemplate.spec.imagePullSecrets"


def model(namespace: str, image: str) -> dict[str, Any]:
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {
            "model": {"source": "builtin://yaie-demo"},
            "engine": {"image": image},
            "resources": {"cpu": "100m", "memory": "2Gi"},
        },
    }


def test_an_engine_image_comes_from_a_private_registry_with_the_named_secret(
    cluster: Cluster, tmp_path: Path
) -> None:
    if not cluster.node_ports:
        pytest.skip("nodes of a cluster of the user do not reach the registry of this process")
    kubectl = cluster.kubectl
    layout = with_own_id(images.layout(), images.image("engine"), tmp_path)
    with serving(Registry(layout)) as registry, cluster.namespace("registry") as place:
        demo = Demo(cluster, place)
        path = images.image("engine").partition("/")[2]
        kubectl.apply(model(place, f"{registry.host}/{path}"))
        until(
            lambda: demo.condition("EnginesReady").get("reason") == "ImagePullFailed",
            "the refused pull",
            timeout_s=30,
        )
        assert FIELD in demo.condition("EnginesReady")["message"]
        assert registry.served == []

        kubectl(
            *("create", "secret", "docker-registry", "regcred", "-n", place),
            f"--docker-server={registry.host}",
            f"--docker-username={USER}",
            f"--docker-password={PASSWORD}",
        )
        named = {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "regcred"}]}}}
        patch = ("patch", "ym/demo", "-n", place, "--type=merge", "-p", json.dumps({"spec": named}))
        kubectl(*patch)
        demo.wait_ready()
        assert any("/manifests/" in path for path in registry.served)
