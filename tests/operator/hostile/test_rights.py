"""Every right of the operator's roles is used: a life of a model is replayed from the audit log."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.audit import Request as Audited
from cluster.control_plane import KubectlError
from cluster.gates.user import MERGE, User, seconds_until, user_of
from cluster.operator_scene import USER, Scene, installed, kubeconfig, operator, scene, until
from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator import rbac
from yaie_operator.cluster import Kind
from yaie_operator.resources.mounts import object_name
from yaie_operator.watch import kinds
from yaie_operator.watch.kube import path_of
from yaie_operator.watch.kube_api import Request

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(600)]
Right = tuple[str, str, str]
"""Verb, resource, and the only name for which it is granted or ""."""

NOT_SEEN: Final[Mapping[Right, str]] = {
    ("bind", "clusterroles", names.ROUTER_CLUSTER_ROLE): "asked for inside of writing RoleBindings",
}
"""Rights of which no request tells, each with its reason."""

SHARED: Final = kinds.OF_NAMESPACE
"""All of them: with policies, and with a second router."""
CACHED: Final = "cached"
CACHE: Final[Mapping[str, Any]] = {"mode": "pvc", "size": "1Gi"}
GROUP: Final = "rbac.authorization.k8s.io"
STRAY: Final[Mapping[str, Any]] = {
    "Service": {"spec": {"selector": {"stray": "yes"}}},
    "Deployment": {"spec": {"template": {"spec": {"nodeName": "stray"}}}},
    "PodDisruptionBudget": {},
    "Secret": {"data": {"stray": "c3RyYXk="}},
    "ServiceAccount": {"automountServiceAccountToken": False},
    "RoleBinding": {"subjects": [{"kind": "Group", "name": "stray", "apiGroup": GROUP}]},
    "NetworkPolicy": {
        "spec": {
            "podSelector": {"matchLabels": {"stray": "yes"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{}],
            "egress": [{}],
        }
    },
    "PersistentVolumeClaim": {},
    "Job": {"spec": {"suspend": True}},
}
"""What somebody adds to a child, so that the operator replaces it."""


def granted(rules: Sequence[Mapping[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", ("",)):
                    yield verb, resource, name


def used(requests: Sequence[Audited]) -> set[Right]:
    """The rights that requests needed, each for its name and for any name. An apply that created
    its object needed the right to create, too; a list or watch of one name names it.
    """
    found = set[Right]()
    for request in requests:
        verbs = {request.verb} | ({"create"} if request.code == 201 else set())
        found |= {(v, request.resource, n) for v in verbs for n in ("", request.name)}
    return found


async def test_each_right_of_the_operator_is_used(
    scene: Scene, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_ROUTER_REPLICAS", "2")  # several have a disruption budget
    monkeypatch.setenv("YAIE_NETWORK_POLICIES", "{}")
    audit = scene.control_plane.audit
    if audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    # A life of its own leaves the Lease to be created.
    scene.kubectl(
        "delete", "lease", names.OPERATOR_LEASE, "-n", "yaie-system", "--ignore-not-found"
    )
    mark = audit.mark()
    with operator(kubeconfig, tmp_path):
        async with user_of(scene) as user:
            await _live(user)
    seen = used(audit.requests_since(mark, user=USER))
    rights = set(granted([*rbac.OPERATOR, *rbac.LEASES]))
    assert {right for right in rights - seen if right not in NOT_SEEN} == set()
    assert {right for right in NOT_SEEN if right in seen} == set(), "it has its proof now"


async def _live(user: User) -> None:
    """Everything that models can go through: one without a cache, and one with a claim."""
    await user.create(
        "demo", replicas=1, autoscaling={"min": 2, "max": 3, "target": {"activeRequests": 8}}
    )
    await user.create(CACHED, model={"source": "hf://org/tiny"}, cache=CACHE)
    cached = object_name(CACHED)
    children = [(child.kind, child.name or "demo") for child in (*SHARED, *kinds.OF_MODEL)]
    children += [(child.kind, cached) for child in kinds.OF_CACHE]
    assert {kind for kind, _ in children} == set(kinds.WRITTEN)

    async def all_there() -> bool:
        found = [await user.get(*child) for child in children]
        return all(found) and await _engines_asked(user)

    await seconds_until(all_there, "the model's children")
    await _routed(user)
    for kind, name in children:
        assert kind.kind in STRAY, f"say in STRAY what others may add to a {kind.kind}"
        unlabelled = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
        for edit in (STRAY[kind.kind], unlabelled):
            await _mended(user, kind, name, edit)
    await _downloads_another(user, cached)
    # A status that is written on an outdated state makes the operator read the model. It looks at
    # most twice a second: the edits go on over several looks.
    for number in range(200):
        await user.edit("demo", resources={"cpu": f"{100 + number}m"})
    await asyncio.sleep(2.0)
    for name in ("demo", CACHED):
        await user.delete(name)

    async def none_shared() -> bool:
        return not any([await user.get(child.kind, child.name) for child in SHARED])

    await seconds_until(none_shared, "the shared objects are still there")


async def _downloads_another(user: User, job: str) -> None:
    """Another source: its download is a new Job in the old one's place."""
    first = (await user.get(kinds.JOB, job))["metadata"]["uid"]
    await user.edit(CACHED, model={"source": "hf://org/other"})

    async def is_replaced() -> bool:
        found = await user.get(kinds.JOB, job)
        return bool(found) and found["metadata"]["uid"] != first

    await seconds_until(is_replaced, "the other source's Job")


async def _routed(user: User) -> None:
    """A first engine has started; wait until the operator has opened its readiness gate."""
    path = path_of(kinds.POD, namespace=user.namespace)
    ours = (("labelSelector", f"{names.LABEL_MODEL}=demo"),)

    async def engines() -> list[Any]:
        pods: list[Any] = (await user.api.send(Request("GET", path, ours)))["items"]
        return pods

    await seconds_until(engines, "an engine")
    name = (await engines())[0]["metadata"]["name"]
    started = {"type": "ContainersReady", "status": "True"}
    started |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"conditions": [started]}}
    await user.api.send(Request("PATCH", f"{path}/{name}/status", (), status, MERGE))

    async def is_open() -> bool:
        conditions = (await user.get(kinds.POD, name))["status"]["conditions"]
        return any(c["type"] == names.CONDITION_ROUTED for c in conditions)

    await seconds_until(is_open, "an open gate")


async def _engines_asked(user: User) -> bool:
    return await user.engines("demo") == 2


async def _mended(user: User, kind: Kind, name: str, edit: Mapping[str, Any]) -> None:
    """Somebody edits a child; wait until the operator has written to it again."""
    path = path_of(kind, namespace=user.namespace, name=name)
    before = await user.get(kind, name)
    after = await user.api.send(Request("PATCH", path, (), edit, MERGE))
    if after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
        return  # nothing to mend

    async def is_mended() -> bool:
        live = await user.get(kind, name)
        labels = live["metadata"].get("labels", {})
        return names.LABEL_MANAGED_BY in labels and _plain(live) == _plain(before)

    await seconds_until(is_mended, f"{kind.kind} {name} after {edit}")


def _plain(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return {k: v for k, v in obj.items() if k not in {"metadata", "status"}}


def test_an_admin_of_a_namespace_may_create_models_and_a_viewer_may_only_look(
    scene: Scene,
) -> None:
    """The chart's roles are aggregated into the cluster's `view`, `edit` and `admin`."""
    into = {"view": ("view", "edit", "admin"), "edit": ("edit", "admin")}
    for name, rules in {"view": rbac.VIEW, "edit": rbac.EDIT}.items():
        labels = {f"{GROUP}/aggregate-to-{role}": "true" for role in into[name]}
        meta = {"name": f"yaie-{name}", "labels": labels}
        role = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": meta}
        scene.kubectl.apply(role | {"rules": rules})
    for who in ("admin", "view"):
        about = (f"--clusterrole={who}", f"--user={who}-of-team", "-n", scene.namespace)
        scene.kubectl("create", "rolebinding", who, *about)

    def acting(who: str, *command: str, stdin: str | None = None) -> str:
        return scene.kubectl(*command, "-n", scene.namespace, f"--as={who}-of-team", stdin=stdin)

    def may_create() -> bool:
        model = inference_model()
        del model["metadata"]["namespace"]
        try:
            acting("admin", "apply", "--server-side", "-f", "-", stdin=json.dumps(model))
        except KubectlError:
            return False
        return True

    until(may_create)  # the aggregation takes a moment
    acting("admin", "scale", "ym/demo", "--replicas=2")
    assert "demo" in acting("view", "get", "ym")
    with pytest.raises(KubectlError, match="cannot delete"):
        acting("view", "delete", "ym", "demo")
    acting("admin", "delete", "ym", "demo")
