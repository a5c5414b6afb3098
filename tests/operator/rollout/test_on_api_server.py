"""What rollouts need of a real API server, with the operator's own rights and no more."""

import json
from pathlib import Path

import pytest

from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene, until
from yaie_api import names

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill]

SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_the_strategy_changes_to_and_fro_and_restarts_no_engine(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    """A strategy's leftover numbers would be refused."""
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        pods = scene.names("pods")
        for rollout, expected in (
            ({"strategy": "Recreate"}, {"type": "Recreate"}),
            ({"strategy": "Auto"}, SURGE),
        ):
            scene.apply(rollout=rollout)
            until(
                lambda wanted=expected: (
                    scene.get("deployment", "demo")["spec"]["strategy"] == wanted
                ),
                lambda: scene.get("deployment", "demo"),
            )
        until(
            lambda: scene.get("ym", "demo")["status"]["rollout"]["step"] == "Complete",
            lambda: scene.get("ym", "demo"),
        )
        assert scene.names("pods") == pods


def test_the_gate_of_a_first_engine_is_opened_with_the_operators_rights(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    started = {"type": "ContainersReady", "status": "True"}
    started |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = json.dumps({"status": {"conditions": [started]}})
    with operator(kubeconfig, tmp_path):
        scene.apply()
        selector = f"{names.LABEL_MODEL}=demo"
        until(lambda: bool(scene.get("pods", "-l", selector)["items"]))
        (pod,) = scene.get("pods", "-l", selector)["items"]
        assert pod["spec"]["readinessGates"] == [{"conditionType": names.CONDITION_ROUTED}]
        here = ("-n", scene.namespace, "--subresource=status")
        scene.kubectl("patch", "pod", pod["metadata"]["name"], *here, "-p", patch)

        def gate() -> str:
            conditions = scene.get("pod", pod["metadata"]["name"])["status"]["conditions"]
            found = (c["reason"] for c in conditions if c["type"] == names.CONDITION_ROUTED)
            return next(found, "")

        until(lambda: gate() == "NoOtherEngine")
        assert [write for write in scene.writes(2.0) if write.resource == "pods"] == []
