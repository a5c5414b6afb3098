"""Clusters that refuse or change what the operator writes: quotas, policies, dying namespaces.

The API server of these tests also enforces who may set an ownerReference. Refused writes are
counted in the audit log: what is refused is tried again after 10, 20, 40 … seconds.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.operator_scene import (
    SYSTEM,
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
from yaie_operator import rbac

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(300)]
REFUSED_FOR_S = 12.0
MOST_TRIES = 2
"""In that time: the first, and one after 10 s. An hour then has nine (`test_refusals`)."""


@pytest.fixture
def running(kubeconfig: Path, tmp_path: Path) -> Iterator[Operator]:
    with operator(kubeconfig, tmp_path) as started:
        yield started


def refused(scene: Scene, mark: int) -> list[str]:
    """The resources of refused writes of the operator, Conflicts apart."""
    assert scene.control_plane.audit is not None
    writes = scene.of_here(scene.control_plane.audit.writes_since(mark, user=USER))
    return [write.resource for write in writes if write.code >= 400 and write.code != 409]


def mark_of(scene: Scene) -> int:
    if scene.control_plane.audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    return scene.control_plane.audit.mark()


def message(scene: Scene, kind: str, name: str = "demo") -> str:
    conditions = scene.get("ym", name).get("status", {}).get("conditions", ())
    return str(next((c["message"] for c in conditions if c["type"] == kind), ""))


def test_the_first_of_two_models_goes_and_nothing_of_the_second_breaks(
    scene: Scene, running: Operator
) -> None:
    """With OwnerReferencesPermissionEnforcement a write that changes owners may be refused."""
    mark = mark_of(scene)
    for name in ("first", "second"):
        scene.apply(name)
        scene.becomes("EnginesReady", "False", "Unschedulable", name)
    until(lambda: names.ROUTER in scene.names("deployments"))
    kept = {"deployment": ("second", names.ROUTER), "service": ("second", names.ROUTER)}

    def uids() -> list[str]:
        return [scene.get(kind, n)["metadata"]["uid"] for kind, both in kept.items() for n in both]

    before = uids()
    scene.kubectl("delete", "ym", "first", "-n", scene.namespace)
    assert scene.writes(3.0) == []
    assert uids() == before
    assert refused(scene, mark) == []


def test_a_quota_of_zero_is_told_and_tried_seldom(scene: Scene, running: Operator) -> None:
    scene.kubectl(
        "create", "quota", "none", "--hard=count/deployments.apps=0", "-n", scene.namespace
    )
    mark = mark_of(scene)
    scene.apply()
    scene.becomes("Accepted", "False", "Refused")
    assert "exceeded quota: none" in message(scene, "Accepted")
    assert "; raise this quota" in message(scene, "Accepted")
    until(lambda: "; raise this quota" in message(scene, "RouterReady"))
    time.sleep(REFUSED_FOR_S)
    tries = refused(scene, mark)
    assert 2 <= len(tries) <= 2 * MOST_TRIES, "the engines' Deployment and the router's"
    scene.kubectl("delete", "quota", "none", "-n", scene.namespace)
    scene.apply(replicas=2)  # a change does not wait
    scene.becomes("Accepted", "True", "Valid")


DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
SCALE = {
    "apiGroups": [names.GROUP], "apiVersions": ["*"], "resources": [f"{names.PLURAL}/scale"],
}  # fmt: skip


def policy(scene: Scene, kind: str, what: dict[str, Any] = DEPLOYMENTS, **spec: Any) -> None:
    """Put an admission policy on resources of the scene's namespace, by default its Deployments."""
    api, name = "admissionregistration.k8s.io/v1", scene.namespace
    rule = {**what, "operations": ["CREATE", "UPDATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    rules = {"matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail"}
    binding = {"policyName": name, "matchResources": {"namespaceSelector": here}}
    if kind == "ValidatingAdmissionPolicy":
        binding["validationActions"] = ["Deny"]  # type: ignore[assignment]
    meta = {"metadata": {"name": name}}
    scene.kubectl.apply(
        {"apiVersion": api, "kind": kind, **meta, "spec": rules | spec},
        {"apiVersion": api, "kind": f"{kind}Binding", **meta, "spec": binding},
    )


def dry_run(scene: Scene) -> dict[str, Any]:
    """A Deployment as the API server would store it; {} if it refuses it."""
    make = ("create", "deployment", "probe", "--image=x", "--dry-run=server", "-o", "json")
    try:
        found: dict[str, Any] = json.loads(scene.kubectl(*make, "-n", scene.namespace))
    except RuntimeError:
        return {}
    return found


def test_a_policy_that_refuses_is_told_in_its_own_words(scene: Scene, running: Operator) -> None:
    rule = {"expression": "has(object.metadata.labels.team)", "message": "label your team"}
    policy(scene, "ValidatingAdmissionPolicy", validations=[rule])
    until(lambda: dry_run(scene) == {})
    mark = mark_of(scene)
    scene.apply()
    scene.becomes("Accepted", "False", "Refused")
    assert "label your team" in message(scene, "Accepted")
    assert "or the policy" in message(scene, "Accepted")
    assert 1 <= len(refused(scene, mark)) <= MOST_TRIES, "the engines' Deployment, the router's"


def scales(scene: Scene) -> bool:
    """Whether the API server would take a change of replicas."""
    try:
        scene.kubectl("scale", "ym/demo", "--replicas=3", "--dry-run=server", "-n", scene.namespace)
    except RuntimeError:
        return False
    return True


def test_a_policy_that_refuses_to_scale_is_told_and_tried_seldom(
    scene: Scene, running: Operator
) -> None:
    rule = {"expression": "false", "message": "replicas are fixed here"}
    policy(scene, "ValidatingAdmissionPolicy", SCALE, validations=[rule])
    scene.apply(replicas=1)
    until(lambda: not scales(scene))
    mark = mark_of(scene)
    scene.apply(autoscaling={"min": 2, "max": 4, "target": {"activeRequests": 10}})
    scene.becomes("ScalingActive", "False", "Refused")
    assert "replicas are fixed here; change the spec" in message(scene, "ScalingActive")
    time.sleep(REFUSED_FOR_S)
    assert 1 <= len(refused(scene, mark)) <= MOST_TRIES
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        scene.kubectl("delete", kind, scene.namespace)
    until(lambda: scene.get("ym", "demo")["spec"]["replicas"] == 2)
    scene.becomes("ScalingActive", "False", "MetricsMissing")  # no engine runs here


def test_a_policy_that_changes_a_child_is_told_and_not_fought(
    scene: Scene, running: Operator
) -> None:
    grace = (
        "Object{spec: Object.spec{template: Object.spec.template{spec: "
        "Object.spec.template.spec{terminationGracePeriodSeconds: 77}}}}"
    )
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": grace}}
    policy(scene, "MutatingAdmissionPolicy", mutations=[mutation], reinvocationPolicy="Never")

    def grace_of(deployment: dict[str, Any]) -> int:
        spec = deployment.get("spec", {}).get("template", {}).get("spec", {})
        return int(spec.get("terminationGracePeriodSeconds", 0))

    until(lambda: grace_of(dry_run(scene)) == 77)
    scene.apply()
    scene.becomes_ready()
    told = "changes spec.template.spec.terminationGracePeriodSeconds of Deployment demo"
    assert told in message(scene, "Accepted")
    assert scene.writes(3.0) == []
    scene.kubectl("scale", "ym/demo", "--replicas=2", "-n", scene.namespace)
    until(lambda: scene.get("deployment", "demo")["spec"]["replicas"] == 2)
    scene.kubectl("scale", "deployment/demo", "--replicas=5", "-n", scene.namespace)
    until(lambda: scene.get("deployment", "demo")["spec"]["replicas"] == 2)


def test_a_namespace_that_is_being_deleted_is_left_alone(scene: Scene, running: Operator) -> None:
    scene.apply()
    scene.becomes("EnginesReady", "False", "Unschedulable")
    patch = json.dumps({"metadata": {"finalizers": ["example.org/keeps"]}})
    for what in ("ym", "deployment"):  # both stay, being deleted, and so does the namespace
        scene.kubectl("patch", what, "demo", "-n", scene.namespace, "--type=merge", "-p", patch)
    mark = mark_of(scene)
    scene.kubectl("delete", "ns", scene.namespace, "--wait=false")
    try:
        until(lambda: "deletionTimestamp" in scene.get("ym", "demo")["metadata"])
        until(lambda: names.ROUTER not in scene.names("deployments"))
        time.sleep(1.0)
        assert scene.writes(3.0) == []
        assert len(refused(scene, mark)) <= 10
    finally:
        for what in ("ym", "deployment"):
            patch = json.dumps({"metadata": {"finalizers": None}})
            scene.kubectl("patch", what, "demo", "-n", scene.namespace, "--type=merge", "-p", patch)


def grant(scene: Scene, name: str, namespace: str, rules: list[dict[str, Any]]) -> None:
    group = "rbac.authorization.k8s.io"
    common = {"apiVersion": f"{group}/v1", "metadata": {"name": name, "namespace": namespace}}
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    scene.kubectl.apply(
        common | {"kind": "Role", "rules": rules},
        common | {"kind": "RoleBinding", "roleRef": role, "subjects": [account]},
    )


def test_a_watched_namespace_that_does_not_exist_yet_holds_up_no_other(
    scene: Scene, tmp_path: Path
) -> None:
    absent, name = f"{scene.namespace}-later", f"of-{scene.namespace}"
    scene.kubectl("create", "serviceaccount", name, "-n", SYSTEM)
    grant(scene, name, scene.namespace, rbac.OPERATOR)
    grant(scene, name, SYSTEM, rbac.LEASES)
    kubeconfig = scene.control_plane.kubeconfig_for(name, SYSTEM, tmp_path / "narrow.kubeconfig")
    watched = f"{absent},{scene.namespace}"
    with operator(kubeconfig, tmp_path, name, "--namespaces", watched) as running:
        scene.apply()
        scene.becomes("EnginesReady", "False", "Unschedulable")
        assert running.says("cannot read a namespace; it is tried again")
        scene.kubectl("create", "namespace", absent)
        grant(scene, name, absent, rbac.OPERATOR)
        later = Scene.__new__(Scene)
        later.control_plane, later.kubectl = scene.control_plane, scene.kubectl
        later.namespace = absent
        later.apply()
        later.becomes("EnginesReady", "False", "Unschedulable")
        scene.kubectl("delete", "ns", absent, "--wait=false")
