"""Lists and watches of all kinds break at once, and come back: nothing stays deaf.

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

from cluster.fault_proxy import HOLE, FaultProxy
from cluster.operator_scene import Operator, Scene, installed, kubeconfig, operator, scene, until
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.watch import kinds
from yaie_operator.watch.watch_health import DEAF_S

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(900)]
FAULT_S = float(os.environ.get("YAIE_FAULT_S", "8"))
REACTION_S = 2.0
PLURALS = {kind.plural for kind in (kinds.INFERENCE_MODEL, *kinds.WATCHED)}


def is_ready(running: Operator) -> bool:
    lines = map(json.loads, running.daemon.log.read_text().splitlines())
    port = next(line["port"] for line in lines if line["message"] == "probes and metrics")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):  # loopback only
            return True
    except urllib.error.HTTPError:
        return False


@pytest.mark.parametrize("mode", ["403", "404", "410", "500", HOLE])
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
            until(lambda: not is_ready(running), timeout_s=DEAF_S + 10.0)
            time.sleep(max(0.0, FAULT_S - (time.monotonic() - broken)))
            assert not is_ready(running)
            proxy.mode = ""
            until(lambda: is_ready(running), running.daemon.tail, timeout_s=30.0)
            wanted = (one for one in kinds.OF_NAMESPACE if one.wanted(OperatorConfig()))
            for child in (*kinds.OF_MODEL, *wanted):
                what = (child.kind.plural, child.name or "demo")
                uid = scene.get(*what)["metadata"]["uid"]
                scene.kubectl("delete", *what, "-n", scene.namespace, "--wait=false")
                deleted = time.monotonic()
                until(
                    lambda what=what, uid=uid: any(  # type: ignore[misc]  # defaults bind
                        item["metadata"]["name"] == what[1] and item["metadata"]["uid"] != uid
                        for item in scene.get(what[0])["items"]
                    )
                )
                # A shared object waits for the second in which a namespace's changes are collected.
                assert time.monotonic() - deleted < REACTION_S + 1.0 * bool(child.name), what
            assert names.ROUTER in scene.names("deployments")
