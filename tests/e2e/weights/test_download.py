"""Weights in a claim on a real node: a download whose process is killed goes on where it was, and
engines mount what it stored without the hub.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.node import NODE_IP
from e2e.support import ROOT, Cluster, Demo, ask, until
from engine.checkpoint.fake_hub import Hub, serving

pytestmark = pytest.mark.e2e

MODEL = ROOT / "engine" / "yaie" / "checkpoint" / "builtin" / "yaie-demo"
WEIGHTS = "model.safetensors"
CLASS = "by-hand"
PACE_S = 1.0
"""For each MiB until the download is killed: 11 s for all of it."""


def volume(name: str, folder: Path) -> dict[str, Any]:
    """A volume that somebody has made: a folder of the node that every pod may write to."""
    folder.chmod(0o777)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def model(namespace: str, hub: Hub) -> dict[str, Any]:
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {
            "model": {"source": "hf://org/demo"},
            "cache": {"mode": "pvc", "size": "1Gi", "storageClass": CLASS},
            "engine": {"env": [{"name": "HF_ENDPOINT", "value": hub.url}]},
            "resources": {"cpu": "100m", "memory": "2Gi"},
        },
    }


def pulling() -> list[int]:
    """Processes of `yaie pull` in pods of this node."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if b"pull" in words and b"hf://org/demo" in words:
                found.append(int(process.name))
    return found


@pytest.fixture
def downloading(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Demo, Hub]]:
    """A model of a slow hub, and a volume for it."""
    if not cluster.node_ports:
        pytest.skip("a cluster of the user does not reach the hub of this process")
    hub = Hub(address=NODE_IP, pace_s=PACE_S)
    hub.push("org/demo", {path.name: path.read_bytes() for path in MODEL.iterdir()})
    folder = tmp_path / "volume"
    folder.mkdir()
    with serving(hub), cluster.namespace("weights") as namespace:
        cluster.kubectl.apply(volume(namespace, folder), model(namespace, hub))
        yield Demo(cluster, namespace), hub
    cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


def cache(demo: Demo) -> dict[str, Any]:
    found: dict[str, Any] = demo.get().get("status", {}).get("cache") or {}
    return found


def test_a_killed_download_goes_on_and_a_second_engine_needs_no_hub(
    downloading: tuple[Demo, Hub],
) -> None:
    demo, hub = downloading
    until(lambda: cache(demo).get("bytes"), "bytes in the status", timeout_s=60)
    told = cache(demo)
    size = (MODEL / WEIGHTS).stat().st_size
    assert told["totalBytes"] == size
    assert 0 < told["bytes"] < size
    killed = pulling()
    for process in killed:
        os.kill(process, signal.SIGKILL)
    # The kubelet starts the next one at once.
    until(lambda: not set(killed) & set(pulling()), "the download's end", timeout_s=10)
    hub.pace_s = 0.0
    until(lambda: demo.condition("CacheReady").get("status") == "True", "the rest", timeout_s=60)

    first, second = hub.ranges(WEIGHTS)
    assert first is None
    assert int((second or "").removeprefix("bytes=").rstrip("-")) >= told["bytes"]
    assert cache(demo)["bytes"] >= size
    demo.wait_ready()
    with demo.client() as client:
        answer = ask(client, "What is a river?").text
        assert answer
        asked = len(hub.asked)
        demo.scale(2)
        time.sleep(1)
        assert len(hub.asked) == asked, hub.asked[asked:]
        until(lambda: ask(client, "What is a river?").text == answer, "the same answer")
