"""`yaie explain` and the nodes of `yaie plan` against a real API server, as a user types them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.control_plane import ControlPlane
from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene, until

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill]
TAINT = {"key": "tests.yaie.dev/advice", "value": "only", "effect": "NoSchedule"}
"""Keeps the pods of other tests from the node."""


def yaie(scene: Scene, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    where = ["--kubeconfig", str(scene.control_plane.kubeconfig), "-n", scene.namespace]
    command = [sys.executable, "-m", "yaie", *words, *where]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def explained(scene: Scene) -> dict[str, Any]:
    done = yaie(scene, "explain", "demo", "-o", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_model_is_explained_from_its_first_second_until_it_is_ready(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    scene.apply()
    assert explained(scene)["reason"] == "NoStatus"
    with operator(kubeconfig, tmp_path):
        scene.becomes("EnginesReady", "False", "Unschedulable")
        waits = explained(scene)
        assert (waits["reason"], waits["is_ready"]) == ("Unschedulable", False)
        assert "waits for a node" in waits["message"]
        assert waits["engines"][0]["state"] == "Pending"
        until(lambda: "FailedScheduling" in {e["reason"] for e in explained(scene)["events"]})
        scene.becomes_ready()
        ready = yaie(scene, "explain", "demo").stdout
    assert f"{scene.namespace}/demo on the cluster of context" in ready
    assert "Nothing is awaited (AllReady for" in ready
    assert "kubectl port-forward service/yaie-router 8000:8000" in ready


def test_an_account_without_rights_is_told_what_it_may_not_read(
    scene: Scene, tmp_path: Path
) -> None:
    scene.apply()
    scene.kubectl("create", "serviceaccount", "reader", "-n", scene.namespace)
    path = scene.control_plane.kubeconfig_for("reader", scene.namespace, tmp_path / "reader")
    command = [sys.executable, "-m", "yaie", "explain", "demo", "--kubeconfig", str(path)]
    done = subprocess.run(
        [*command, "-n", scene.namespace], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert 'cannot get resource "inferencemodels"' in done.stderr
    rule = ("--verb=get,list", "--resource=inferencemodels.yaie.dev", "-n", scene.namespace)
    scene.kubectl("create", "role", "reader", *rule)
    account = f"--serviceaccount={scene.namespace}:reader"
    scene.kubectl(
        "create", "rolebinding", "reader", "--role=reader", account, "-n", scene.namespace
    )
    until(lambda: _may_read(command, scene.namespace))
    done = subprocess.run(
        [*command, "-n", scene.namespace], capture_output=True, text=True, check=False
    )
    assert "(this account may not list pods, so engines are not shown)" in done.stdout
    assert "(this account may not list Events, so they are not shown)" in done.stdout


def _may_read(command: list[str], namespace: str) -> bool:
    done = subprocess.run([*command, "-n", namespace], capture_output=True, check=False)
    return done.returncode == 0


def test_a_model_that_is_not_there_names_those_that_are(scene: Scene) -> None:
    scene.apply("other")
    done = yaie(scene, "explain", "demo")
    assert (done.returncode, "(models there: other)" in done.stderr) == (1, True)


@pytest.fixture
def gpu_node(control_plane: ControlPlane) -> Iterator[str]:
    """A node with two L4s that only tolerating pods would run on; no kubelet is behind it."""
    kubectl, name = control_plane.kubectl, "advice-gpu-node"
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"}
    meta = {"name": name, "labels": labels}
    spec = {"taints": [TAINT], "unschedulable": False}
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
    sizes = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "",
             "lastHeartbeatTime": "2026-01-01T00:00:00Z",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready]}
    patch = json.dumps({"status": status})
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
    yield name
    kubectl("delete", "node", name)


def planned(scene: Scene, **resources: Any) -> subprocess.CompletedProcess[str]:
    spec = {
        "model": {"source": "builtin://yaie-demo"},
        "resources": {"gpu": {"count": 1}, **resources},
    }
    model = {"apiVersion": "yaie.dev/v1alpha1", "kind": "InferenceModel",
             "metadata": {"name": "planned"}, "spec": spec}  # fmt: skip
    return yaie(scene, "plan", "-f", "-", stdin=yaml.safe_dump(model))


def test_a_plan_tells_which_nodes_have_room(scene: Scene, installed: object, gpu_node: str) -> None:
    refused = planned(scene)
    assert refused.returncode == 1
    assert f"its taint {TAINT['key']}=only:NoSchedule is not tolerated" in refused.stdout
    # The node controller taints a node that no kubelet keeps alive.
    tolerations = [{"operator": "Exists"}]
    done = planned(scene, tolerations=tolerations, cpu="1")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [one for one in done.stdout.splitlines() if one.startswith(gpu_node)]
    assert line.split() == [gpu_node, "NVIDIA-L4", "22.49", "GiB", "2", "of", "2", "2", "-"]
    assert "One GPU is enough: NVIDIA-L4 (22.49 GiB)." in done.stdout
    assert "planned: 1 wanted, 0 running" in done.stdout
    assert "A rollout has a spare place" in done.stdout
