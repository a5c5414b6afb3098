"""Weights in a claim on a real API server, with the operator's own rights: the Job controller makes
the download's pod, and the test plays its kubelet.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.operator_scene import (
    COLLECTED_S,
    USER,
    Scene,
    installed,
    kubeconfig,
    operator,
    scene,
    until,
)
from yaie_api import names
from yaie_api.download.messages import Result

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill]

COMMIT = "5f" * 20
RESULT = Result(f"hub/models--org--tiny/snapshots/{COMMIT}", COMMIT, 6_300_000)
DOWNLOAD = f"{names.LABEL_COMPONENT}={names.COMPONENT_WEIGHTS}"


class Downloads:
    """What a kubelet would do with the pod of the download."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def pod(self) -> Any:
        found: list[Any] = []

        def is_there() -> bool:
            pods = self._scene.get("pods", "-l", DOWNLOAD)["items"]
            found[:] = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            return bool(found)

        until(is_there, lambda: self._scene.get("ym,jobs,pvc"))
        return found[0]

    def fail(self, sentence: str) -> None:
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": sentence}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        self._set("Running", {"state": waiting, "lastState": ended, "restartCount": 1})

    def succeed(self) -> None:
        message = RESULT.text()
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        self._set("Succeeded", {"state": ended, "restartCount": 1})

    def _set(self, phase: str, container: dict[str, Any]) -> None:
        whole = {"name": "download", "image": "e", "imageID": "", "ready": False, **container}
        scheduled = {"type": "PodScheduled", "status": "True"}
        status = {"phase": phase, "conditions": [scheduled], "containerStatuses": [whole]}
        self._scene.kubectl(
            "patch", "pod", self.pod()["metadata"]["name"], "-n", self._scene.namespace,
            "--subresource=status", "-p", json.dumps({"status": status}),
        )  # fmt: skip


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_a_download_leads_to_engines_and_nothing_is_written_after_it(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    downloads = Downloads(scene)
    with operator(kubeconfig, tmp_path):
        scene.apply(model={"source": "hf://org/tiny"}, cache={"mode": "pvc", "size": "20Gi"})
        pod = downloads.pod()
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        claim = scene.get("pvc", "demo-weights")
        assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}
        downloads.fail("org/tiny is gated.")
        scene.becomes("CacheReady", "False", "DownloadFailed")
        assert "demo" not in scene.names("deployments")
        downloads.succeed()
        scene.becomes("CacheReady", "True", "Stored")
        until(lambda: "demo" in scene.names("deployments"))
        template = scene.get("deployment", "demo")["spec"]["template"]["spec"]
        assert template["containers"][0]["args"][0].endswith(RESULT.folder)
        status = scene.get("ym", "demo")["status"]
        assert status["model"]["resolvedRevision"] == COMMIT
        assert status["cache"]["folder"] == RESULT.folder
        job = ("wait", "--for=condition=Complete", "job/demo-weights", "--timeout=30s")
        scene.kubectl(*job, "-n", scene.namespace)
        scene.becomes_ready()
        assert scene.writes(3.0) == []
    audit = scene.control_plane.audit
    assert audit is not None
    mark = audit.mark()
    with operator(kubeconfig, tmp_path, "second"):
        time.sleep(2.0)
        assert scene.of_here(audit.writes_since(mark, user=USER)) == []


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_another_source_replaces_the_job_and_only_the_users_claim_outlives_the_models(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models", "namespace": scene.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
        },
    }  # fmt: skip
    cache = {"mode": "pvc", "claim": "models"}
    with operator(kubeconfig, tmp_path):
        scene.apply(model={"source": "hf://org/tiny"}, cache=cache)
        scene.becomes("CacheReady", "False", "ClaimMissing")
        scene.kubectl.apply(claim)
        downloads = Downloads(scene)
        first = downloads.pod()["metadata"]["uid"]
        scene.apply(model={"source": "hf://org/other"}, cache=cache)
        until(lambda: downloads.pod()["metadata"]["uid"] != first)
        assert "hf://org/other" in downloads.pod()["spec"]["containers"][0]["args"]
        scene.apply("other", model={"source": "hf://a/b"}, cache={"mode": "pvc", "size": "1Gi"})
        until(lambda: scene.names("pvc") == {"models", "other-weights"})
        scene.kubectl("delete", "ym", "demo", "other", "-n", scene.namespace)
        until(lambda: scene.names("jobs") == set(), timeout_s=COLLECTED_S)
        until(lambda: scene.names("pvc") == {"models"}, timeout_s=COLLECTED_S)


def test_an_image_is_mounted_or_refused_with_a_reason(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply(
            model={"source": "oci://registry.example.com/org/tiny:v1"}, cache={"mode": "image"}
        )
        until(lambda: scene.condition("CacheReady")[1] in {"ImageVolume", "NoImageVolumes"})
        status, reason = scene.condition("CacheReady")
        assert (status == "True") == ("demo" in scene.names("deployments"))
        assert (reason == "ImageVolume") == (status == "True")
