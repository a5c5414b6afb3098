"""Policies and budgets on a real API server, with the operator's own rights."""

import json
from pathlib import Path

import pytest

from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene, until
from yaie_api import names

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(300)]
PEER = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}
POLICIES = {names.ROUTER, names.ENGINES, names.WEIGHTS}


def test_policies_and_budgets_come_are_repaired_and_go(
    scene: Scene, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_NETWORK_POLICIES", json.dumps({"engineClients": [PEER]}))
    monkeypatch.setenv("YAIE_ROUTER_REPLICAS", "2")
    here = ("-n", scene.namespace)
    with operator(kubeconfig, tmp_path, "policing"):
        scene.apply()
        until(lambda: scene.names("networkpolicies") >= POLICIES)
        until(lambda: names.ROUTER in scene.names("poddisruptionbudgets"))
        until(lambda: names.ROUTER in scene.names("deployments"))
        scene.becomes("EnginesReady", "False", "Unschedulable")
        assert scene.writes(3.0) == []  # what the API server stores is what was meant
        wanted = scene.get("networkpolicy", names.ENGINES)["spec"]
        opened = json.dumps({"spec": {"ingress": [{}]}})
        scene.kubectl("patch", "netpol", names.ENGINES, *here, "--type=merge", "-p", opened)
        until(lambda: scene.get("networkpolicy", names.ENGINES)["spec"] == wanted)
        for plural in ("networkpolicies", "poddisruptionbudgets"):
            scene.kubectl("delete", plural, names.ROUTER, *here)
            until(lambda plural=plural: names.ROUTER in scene.names(plural))  # type: ignore[misc]
    monkeypatch.delenv("YAIE_NETWORK_POLICIES")
    monkeypatch.delenv("YAIE_ROUTER_REPLICAS")
    foreign = {"name": "theirs", "namespace": scene.namespace}
    spec = {"podSelector": {}}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": foreign}
    scene.kubectl.apply({**policy, "spec": spec})
    with operator(kubeconfig, tmp_path, "open"):
        until(lambda: scene.names("networkpolicies") == {"theirs"})
        until(lambda: names.ROUTER not in scene.names("poddisruptionbudgets"))
