"""`yaie doctor` against a real API server: before the operator, with it, and with few rights."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene, until
from yaie.cli.advice.checking.workloads import DEFAULT_CLASS

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill]


def doctor(path: Path, namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yaie", "doctor", "--no-machine", "--kubeconfig", str(path)]
    return subprocess.run(
        [*command, "-n", namespace, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def findings(path: Path, namespace: str) -> dict[str, tuple[str, str]]:
    """Level and message of each check, by its name."""
    done = doctor(path, namespace, "-o", "json")
    (found,) = json.loads(done.stdout).values()
    assert done.returncode == int(any(one["level"] == "fail" for one in found)), done.stderr
    return {one["name"]: (one["level"], one["message"]) for one in found}


def test_a_cluster_with_a_working_operator(scene: Scene, kubeconfig: Path, tmp_path: Path) -> None:
    admin = scene.control_plane.kubeconfig
    with operator(kubeconfig, tmp_path):
        scene.apply()
        until(lambda: findings(admin, scene.namespace)["leader"][0] == "ok")
        until(lambda: findings(admin, scene.namespace)["router"][0] == "fail")  # made, not ready
        found = findings(admin, scene.namespace)
    assert found["API server"][1].startswith("Kubernetes v1.")
    assert found["CRD"] == ("ok", found["CRD"][1])
    assert found["rights"][0] == "ok"
    # The operator of the tests runs beside the cluster, and the cluster has no nodes.
    assert found["operator"] == ("fail", "no Deployment of it")
    assert found["GPU nodes"][0] == "warn"
    assert found["models"][0] == "warn"
    assert "not ready: demo" in found["models"][1]
    assert found["router"][0] == "fail"


def test_an_operator_that_stopped_is_a_failure(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        pass
    level, message = findings(scene.control_plane.kubeconfig, scene.namespace)["leader"]
    assert (level, message) == ("fail", "the Lease is given up and nobody has taken it")


def test_a_type_of_another_release_says_where_it_differs(scene: Scene) -> None:
    done = doctor(scene.control_plane.kubeconfig, scene.namespace)
    assert "  ok    CRD               yaie.dev/v1alpha1, the schema of yaie" in done.stdout
    scene.kubectl("patch", "crd", "inferencemodels.yaie.dev", "--type=json", "-p", _LONGER)
    try:
        changed = findings(scene.control_plane.kubeconfig, scene.namespace)["CRD"]
    finally:
        scene.kubectl("patch", "crd", "inferencemodels.yaie.dev", "--type=json", "-p", _AS_BEFORE)
    assert (changed[0], "spec.suspend.default differs" in changed[1]) == ("warn", True)


_SUSPEND = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/suspend/default"
_LONGER = json.dumps([{"op": "replace", "path": _SUSPEND, "value": True}])
_AS_BEFORE = json.dumps([{"op": "replace", "path": _SUSPEND, "value": False}])


def test_an_account_with_few_rights_is_told_what_it_may_not(scene: Scene, tmp_path: Path) -> None:
    scene.kubectl("create", "serviceaccount", "nobody", "-n", scene.namespace)
    path = scene.control_plane.kubeconfig_for("nobody", scene.namespace, tmp_path / "nobody")
    found = findings(path, scene.namespace)
    assert found["API server"][0] == "ok"
    assert found["rights"][0] == "fail"
    assert "may not create inferencemodels" in found["rights"][1]
    assert "list nodes" in found["rights"][1]
    assert {found[name][0] for name in ("operator", "leader", "GPU nodes", "storage")} == {"warn"}


@pytest.fixture
def storage_class(control_plane: ControlPlane) -> Iterator[str]:
    name = "advice-fast"
    meta = {"name": name, "annotations": {DEFAULT_CLASS: "true"}}
    control_plane.kubectl.apply(
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta,
         "provisioner": "tests.yaie.dev/none"}
    )  # fmt: skip
    yield name
    control_plane.kubectl("delete", "storageclass", name)


def test_a_default_storage_class_and_an_image_that_cannot_be_pulled(
    scene: Scene, storage_class: str
) -> None:
    admin = scene.control_plane.kubeconfig
    labels = {"app.kubernetes.io/managed-by": "yaie-operator"}
    container = {"name": "engine", "image": "registry.invalid/engine:9"}
    scene.kubectl.apply(
        {"apiVersion": "v1", "kind": "Pod",
         "metadata": {"name": "stuck", "namespace": scene.namespace, "labels": labels},
         "spec": {"containers": [container]}}
    )  # fmt: skip
    waiting = {"name": "engine", "image": container["image"], "imageID": "", "ready": False,
               "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}}  # fmt: skip
    status = json.dumps({"status": {"containerStatuses": [waiting]}})
    patch = ("patch", "pod", "stuck", "-n", scene.namespace, "--subresource=status", "-p", status)
    scene.kubectl(*patch)
    found = findings(admin, scene.namespace)
    assert found["storage"] == ("ok", f"default StorageClass {storage_class}")
    assert found["images"] == ("fail", "cannot be pulled: registry.invalid/engine:9")


def test_a_cluster_that_does_not_answer_ends_the_command_in_time(
    scene: Scene, tmp_path: Path
) -> None:
    text = scene.control_plane.kubeconfig.read_text().replace(
        scene.control_plane.server, "https://127.0.0.1:9"
    )
    (tmp_path / "config").write_text(text)
    began = time.monotonic()
    done = doctor(tmp_path / "config", scene.namespace)
    assert (done.returncode, time.monotonic() - began < 10) == (1, True), done.stdout
    assert "  fail  API server        the API server does not answer: Cannot connect" in done.stdout
    assert done.stdout.endswith("1 failure, 0 warnings.\n")
