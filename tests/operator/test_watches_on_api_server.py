"""Lists and watches of all kinds break at once, the CRD or all rights go, and come back: nothing
stays deaf.

`YAIE_FAULT_S` is how long each fault lasts: 8 seconds by default.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.control_plane import KubectlError
from cluster.fault_proxy import HOLE, FaultProxy
from cluster.operator_scene import (
    COLLECTED_S,
    USER,
    Operator,
    Scene,
    installed,
    kubeconfig,
    operator,
    scene,
    until,
)
from yaie_api import names
from yaie_api.resource import crd
from yaie_operator.config import OperatorConfig
from yaie_operator.watch import kinds
from yaie_operator.watch.watch_health import DEAF_S

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(900)]
FAULT_S = float(os.environ.get("YAIE_FAULT_S", "8"))
REACTION_S = 2.0
CREATED = 201
HEALED_S = 60.0
CRD = f"crd/{names.PLURAL}.{names.GROUP}"
PLURALS = {kind.plural for kind in (kinds.INFERENCE_MODEL, *kinds.WATCHED)}


def is_ready(running: Operator) -> bool:
    lines = map(json.loads, running.daemon.log.read_text().splitlines())
    port = next(line["port"] for line in lines if line["message"] == "probes and metrics")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):  # loopback only
            return True
    except urllib.error.HTTPError:
        return False


def reacts(scene: Scene) -> None:
    """Each kind of child that is deleted comes back within seconds of the API server's clock."""
    audit = scene.control_plane.audit
    if audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    wanted = (one for one in kinds.OF_NAMESPACE if one.wanted(OperatorConfig()))
    for child in (*kinds.OF_MODEL, *wanted):
        what = (child.kind.plural, child.name or "demo")
        uid = scene.get(*what)["metadata"]["uid"]
        mark = audit.mark()
        scene.kubectl("delete", *what, "-n", scene.namespace, "--wait=false")
        until(
            lambda what=what, uid=uid: any(  # type: ignore[misc]  # defaults bind
                item["metadata"]["name"] == what[1] and item["metadata"]["uid"] != uid
                for item in scene.get(what[0])["items"]
            )
        )
        writes = scene.of_here(audit.writes_since(mark))
        of_child = [write for write in writes if (write.resource, write.name) == what]
        deleted = next(write.at for write in of_child if write.verb == "delete")
        again = next(write.at for write in of_child if (write.user, write.code) == (USER, CREATED))
        # A shared object waits for the second in which a namespace's changes are collected.
        assert again - deleted < REACTION_S + 1.0 * bool(child.name), what


def lasts(running: Operator, since: float) -> None:
    """A fault shows in readiness, and goes on showing for as long as it lasts."""
    until(lambda: not is_ready(running), timeout_s=DEAF_S + 10.0)
    time.sleep(max(0.0, FAULT_S - (time.monotonic() - since)))
    assert not is_ready(running)


@pytest.mark.parametrize("mode", ["403", "404", "410", "429", "500", HOLE])
def test_broken_lists_and_watches_show_in_readiness_and_recover(
    mode: str, scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    cluster = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = tmp_path / "ca.pem"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    proxy = FaultProxy(cluster["server"], authority, PLURALS)
    with proxy.running():
        through = proxy.kubeconfig(kubeconfig, tmp_path / "kubeconfig")
        with operator(through, tmp_path, f"watching-{mode}") as running:
            scene.apply()
            scene.becomes_ready()
            until(lambda: is_ready(running))
            broken = time.monotonic()
            proxy.mode = mode
            lasts(running, broken)
            proxy.mode = ""
            until(lambda: is_ready(running), running.daemon.tail, timeout_s=30.0)
            reacts(scene)
            assert names.ROUTER in scene.names("deployments")


def test_a_crd_that_is_deleted_and_created_again_is_served_as_before(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    definition = crd.render()
    with operator(kubeconfig, tmp_path, "without-crd") as running:
        scene.apply()
        scene.becomes_ready()
        until(lambda: is_ready(running))
        try:
            scene.kubectl("delete", CRD)
            lasts(running, time.monotonic())
        finally:
            scene.kubectl.apply(definition)
            scene.kubectl("wait", "--for=condition=Established", CRD, "--timeout=30s")
        until(lambda: is_ready(running), running.daemon.tail, timeout_s=HEALED_S)
        until(lambda: _is_applied(scene))
        accepted = ("True", "Valid")  # once the old model's Deployment has been collected
        until(lambda: scene.condition("Accepted") == accepted, timeout_s=COLLECTED_S)
        scene.becomes_ready()
        reacts(scene)


def _is_applied(scene: Scene) -> bool:
    """Whether the API server takes a model: discovery takes a moment to know a new CRD."""
    try:
        scene.apply()
    except KubectlError:
        return False
    return True


def test_rights_that_are_taken_and_given_back_are_used_again(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    binding = scene.kubectl.get("clusterrolebinding", "yaie-operator")
    given = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    given["metadata"] = {"name": binding["metadata"]["name"]}
    with operator(kubeconfig, tmp_path, "without-rights") as running:
        scene.apply()
        scene.becomes_ready()
        until(lambda: is_ready(running))
        try:
            scene.kubectl("delete", "clusterrolebinding", "yaie-operator")
            lasts(running, time.monotonic())
        finally:
            scene.kubectl.apply(given)
        until(lambda: is_ready(running), running.daemon.tail, timeout_s=HEALED_S)
        reacts(scene)
