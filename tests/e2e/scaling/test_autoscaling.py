"""Engines come and go with the load of real clients, through the router, down to none and back."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e.support import Cluster, Demo, ask, until
from fakes.streaming_load import Load

pytestmark = pytest.mark.e2e

DECIDED_WITHIN_S = 5.0
AUTOSCALING = {
    "min": 0,
    "max": 3,
    "idleSeconds": 10,
    "target": {"activeRequests": 2},
    "scaleUp": {"windowSeconds": 6, "panicWindowSeconds": 4},
    "scaleDown": {"stabilizationSeconds": 8},
}
SATURATION = 6
"""Clients that three engines are needed for."""


@dataclass
class Replicas:
    """Every value that spec.replicas had, with the time at which the API server told it."""

    demo: Demo
    seen: list[tuple[float, int]] = field(default_factory=list)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Replicas"]:
        """Follow the model while the block runs."""
        kubectl = self.demo.cluster.kubectl
        look = ["get", f"ym/{self.demo.name}", "-n", self.demo.namespace, "--watch"]
        command = [kubectl.program, "--kubeconfig", kubectl.kubeconfig, *look]
        value = "-o=jsonpath={.spec.replicas}{'\\n'}"
        with subprocess.Popen([*command, value], stdout=subprocess.PIPE, text=True) as watch:
            reader = threading.Thread(target=self._read, args=(watch,))
            reader.start()
            try:
                yield self
            finally:
                watch.terminate()
                reader.join()

    def _read(self, watch: "subprocess.Popen[str]") -> None:
        assert watch.stdout is not None
        for line in watch.stdout:
            now = int(line or 1)
            if not self.seen or self.seen[-1][1] != now:
                self.seen.append((time.monotonic(), now))

    @property
    def now(self) -> int:
        return self.seen[-1][1] if self.seen else -1

    def since(self, start: float) -> list[int]:
        """The values after a time, in order."""
        return [value for at, value in self.seen if at >= start]

    def first_change(self, start: float) -> float:
        """Seconds from a time to the first change after it."""
        return next(at for at, _ in self.seen if at >= start) - start


def autoscaled(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "builtin://yaie-demo"},
            "resources": {"cpu": "100m", "memory": "2Gi"},
            "autoscaling": AUTOSCALING,
        },
    }


@pytest.fixture
def scaled(cluster: Cluster) -> Iterator[Demo]:
    with cluster.namespace("autoscaling") as namespace:
        demo = Demo(cluster, namespace)
        obj = autoscaled(demo.name)
        obj["metadata"]["namespace"] = namespace
        cluster.kubectl.apply(obj)
        demo.wait_ready()
        yield demo


def decisions(demo: Demo) -> list[dict[str, Any]]:
    """`status.scaling.lastDecisions`, the newest first."""
    found: list[dict[str, Any]] = demo.get()["status"]["scaling"]["lastDecisions"]
    return found


def test_engines_follow_the_load_up_down_to_none_and_back_and_no_request_fails(
    scaled: Demo,
) -> None:
    with scaled.client() as client, Replicas(scaled).watched() as replicas:
        port = client.base_url.port or 80
        until(lambda: replicas.now == 1, "the watch", timeout_s=10)
        steady = Load(port)
        with steady.running(clients=1):
            steady.more(1)

            began = time.monotonic()
            with Load(port).running(clients=SATURATION - 1) as peak:
                until(lambda: replicas.now == 3, "three engines to be asked for", timeout_s=20)
                until(lambda: scaled.get()["status"]["ready"] == "3/3", "three engines")
            assert replicas.first_change(began) < DECIDED_WITHIN_S
            ups = replicas.since(began)
            assert ups == sorted(ups), ups
            assert {each["reason"] for each in decisions(scaled)} == {"AboveTarget"}
            assert decisions(scaled)[0]["inputs"]["activeRequests"] > 2

            began = time.monotonic()
            bursts = []
            for _ in range(3):
                with Load(port).running(clients=SATURATION - 1) as burst:
                    burst.more(SATURATION)
                bursts.append(burst)
                time.sleep(2)
            until(lambda: replicas.now == 1, "one engine", timeout_s=40)
            until(lambda: len(scaled.pods()) == 1, "the others to be gone")
            downs = replicas.since(began)
            assert downs == sorted(downs, reverse=True), f"bursts make it swing: {downs}"
            assert decisions(scaled)[0]["reason"] == "BelowTarget"
        assert [*steady.failures, *peak.failures, *(f for b in bursts for f in b.failures)] == []
        assert len(peak.engines | {e for b in bursts for e in b.engines}) == 3

        until(lambda: replicas.now == 0, "no engine", timeout_s=30)
        assert decisions(scaled)[0]["reason"] == "ToZero"
        until(lambda: not scaled.pods(), "the last engine to be gone")
        began = time.monotonic()
        assert ask(client, "Is anybody there?").text
        assert replicas.since(began) == [1]
        assert replicas.first_change(began) < DECIDED_WITHIN_S
        assert decisions(scaled)[0]["reason"] == "FromZero"
