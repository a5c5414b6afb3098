"""The operator's process against a real API server, with the operator's own rights and no more.

There is no node: pods stay Pending, and `play_kubelet` marks them as a kubelet would.
"""

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from api.crd_cases import CASES, Case
from api.field_values import POD
from cluster.control_plane import ControlPlane, KubectlError
from cluster.operator_scene import (
    COLLECTED_S,
    SYSTEM,
    TIMEOUT_S,
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
from yaie_local.apiserver.admission import Admission
from yaie_operator import rbac
from yaie_operator.cluster import ConflictError
from yaie_operator.watch import kube
from yaie_operator.watch.kinds import INFERENCE_MODEL, SERVICE
from yaie_operator.watch.kube import ChangeQueue, KubeCluster
from yaie_operator.watch.kube_api import KubeApi, RefusedError, Request, load_configuration

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = pytest.mark.cluster


async def test_the_api_server_and_our_admission_agree_on_every_case(
    installed: tuple[ControlPlane, Path],
) -> None:
    control_plane = installed[0]
    namespace = control_plane.new_namespace("cases")
    api = KubeApi(await load_configuration(str(control_plane.kubeconfig)))
    try:
        wrong = [problem for case in CASES if (problem := await _check(api, case, namespace))]
    finally:
        await api.close()
    assert wrong == []


async def _check(api: KubeApi, case: Case, namespace: str) -> str | None:
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    query = (("fieldValidation", "Strict"), ("dryRun", "All"))
    request = Request("POST", path, query, case.object(namespace))
    if case.before is not None:
        before = case.object(namespace, case.before)
        stored = await api.send(Request("POST", path, body=before))
        changed = case.object(namespace)
        changed["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"]}
        request = Request("PUT", f"{path}/{case.name}", query, changed)
    try:
        await api.send(request)
        said = None
    except RefusedError as refusal:
        said = str(refusal)
    if case.before is not None:
        await api.send(Request("DELETE", f"{path}/{case.name}"))
    agrees = said is None if case.refused is None else case.refused in (said or "")
    return None if agrees else f"{case.title}: {said}"


async def test_the_api_server_fills_in_the_same_defaults(
    installed: tuple[ControlPlane, Path],
) -> None:
    control_plane = installed[0]
    namespace = control_plane.new_namespace("defaults")
    api = KubeApi(await load_configuration(str(control_plane.kubeconfig)))
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    case = next(case for case in CASES if case.title == "the smallest spec")
    try:
        stored = await api.send(Request("POST", path, (("dryRun", "All"),), case.object(namespace)))
    finally:
        await api.close()
    assert stored["spec"] == Admission(crd.render()).default(case.object(namespace))["spec"]


def test_kubectl_explains_and_lists_models(scene: Scene) -> None:
    assert "hf://ORG/NAME" in scene.kubectl("explain", "ym.spec.model.source")
    scene.apply(resources={"gpu": {"count": 1}})
    table = scene.kubectl("get", "yaie", "-n", scene.namespace)
    header = "NAME MODEL READY PHASE GPU REASON AGE"
    assert table.split("\n")[0].split() == header.split()
    assert "builtin://yaie-demo" in table
    wide = scene.kubectl("get", "ym", "-n", scene.namespace, "-o", "wide")
    header = "NAME MODEL READY PHASE GPU REASON CONTEXT CONCURRENCY ENDPOINT AGE"
    assert wide.split("\n")[0].split() == header.split()


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_a_model_lives_from_apply_to_garbage_collection(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        wanted = {
            "Deployment/demo", "Service/demo", "PodDisruptionBudget/demo",
            f"Deployment/{names.ROUTER}",
            f"Service/{names.ROUTER}", f"ServiceAccount/{names.ROUTER}",
            f"RoleBinding/{names.ROUTER}", f"Secret/{names.ROUTER_SECRET}",
        }  # fmt: skip
        assert {child for child in scene.children() if not child.startswith("Pod/")} == wanted
        slices = scene.get("endpointslices", "-l", f"{names.LABEL_MODEL}=demo")["items"]
        assert slices[0]["metadata"]["labels"][names.LABEL_SERVICE_NAME] == "demo"
        scene.kubectl("wait", "--for=condition=Ready", "ym/demo", "-n", scene.namespace)
        assert scene.get("ym", "demo")["status"]["ready"] == "1/1"
        scene.kubectl("delete", "ym", "demo", "-n", scene.namespace)
        until(lambda: scene.children() == set(), scene.children, timeout_s=COLLECTED_S)


@pytest.mark.drill
def test_nothing_is_written_while_nothing_changes_nor_by_a_restarted_operator(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path, "first"):
        resources = {"cpu": "1000m", "memory": "1024Mi"}
        scheduled = {k: v for k, v in POD["podTemplate"]["spec"].items() if k != "schedulerName"}
        scene.apply(resources=resources, podTemplate={**POD["podTemplate"], "spec": scheduled})
        scene.becomes_ready()
        assert scene.writes(3.0) == []
    audit = scene.control_plane.audit
    assert audit is not None
    mark = audit.mark()
    with operator(kubeconfig, tmp_path, "second"):
        time.sleep(4.0)
        assert scene.of_here(audit.writes_since(mark, user=USER)) == []


def test_kopf_wakes_the_queue_long_before_the_next_full_list(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        started = time.monotonic()
        scene.kubectl("delete", "service", "demo", "-n", scene.namespace)
        until(lambda: "demo" in scene.names("services"))
        assert time.monotonic() - started < 5.0
        scene.kubectl("delete", "secret", names.ROUTER_SECRET, "-n", scene.namespace)
        until(lambda: names.ROUTER_SECRET in scene.names("secrets"))
        assert time.monotonic() - started < 12.0


def test_scaling_through_the_subresource_reaches_the_engines(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        scene.kubectl("scale", "ym/demo", "--replicas=2", "-n", scene.namespace)
        scene.becomes("Ready", "False", "Unschedulable")
        assert scene.get("deployment", "demo")["spec"]["replicas"] == 2
        scene.play_kubelet()
        scene.becomes("Ready", "True", "AllReady")
        scale = json.loads(
            scene.kubectl(
                "get", "--raw",
                f"/apis/{names.API_VERSION}/namespaces/{scene.namespace}/{names.PLURAL}/demo/scale",
            )
        )  # fmt: skip
        assert scale["spec"]["replicas"] == scale["status"]["replicas"] == 2
        pods = scene.get("pods", "-l", scale["status"]["selector"])["items"]
        assert len(pods) == 2


def test_a_lost_engine_makes_ready_false_and_true_again(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        scene.kubectl("delete", "pods", "-n", scene.namespace, "-l", f"{names.LABEL_MODEL}=demo")
        scene.becomes("Ready", "False", "Unschedulable")
        assert scene.condition("Available") == ("False", "NoEngine")
        scene.play_kubelet()
        scene.becomes("Ready", "True", "AllReady")
        events = scene.get("events", "--field-selector", "involvedObject.kind=InferenceModel")
        told = [event["message"] for event in events["items"]]
        assert sum(message.startswith("Ready=False: ") for message in told) == 1
        assert sum(message.startswith("Ready=True: ") for message in told) == 2


def test_a_foreign_service_is_a_conflict_and_stays_untouched(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    scene.kubectl("create", "service", "clusterip", "demo", "--tcp=80:80", "-n", scene.namespace)
    foreign = scene.get("service", "demo")
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes("Accepted", "False", "NameConflict")
        assert scene.get("service", "demo") == foreign
        assert "demo" not in scene.names("deployments")
        scene.kubectl("delete", "service", "demo", "-n", scene.namespace)
        scene.becomes("Accepted", "True", "Valid")


@pytest.mark.timeout(300)
def test_a_second_model_shares_the_router_which_outlives_the_first(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply("first")
        scene.becomes("EnginesReady", "False", "Unschedulable", "first")
        until(lambda: names.ROUTER in scene.names("deployments"))
        uid = scene.get("deployment", names.ROUTER)["metadata"]["uid"]
        scene.apply("second")
        scene.becomes("EnginesReady", "False", "Unschedulable", "second")
        scene.kubectl("delete", "ym", "first", "-n", scene.namespace)
        until(lambda: "first" not in scene.names("deployments"), timeout_s=COLLECTED_S)
        assert scene.get("deployment", names.ROUTER)["metadata"]["uid"] == uid


FOREIGN = {
    "deployment": {
        "spec": {
            "template": {
                "spec": {
                    "hostNetwork": True,
                    "initContainers": [{"name": "stray", "image": "stray"}],
                    "containers": [
                        {"name": "engine", "env": [{"name": "LD_PRELOAD", "value": "/x.so"}]}
                    ],
                }
            }
        }
    },
    "service": {"spec": {"selector": {"stray": "yes"}, "externalIPs": ["192.0.2.1"]}},
}


@pytest.mark.drill
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_others_add_to_a_child_is_removed_within_seconds(
    kind: str, scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        wanted = scene.get(kind, "demo")["spec"]
        patch = ("--type=strategic", "-p", json.dumps(FOREIGN[kind]))
        scene.kubectl("patch", kind, "demo", "-n", scene.namespace, *patch)
        until(lambda: scene.get(kind, "demo")["spec"] == wanted, timeout_s=5.0)
        assert [write for write in scene.writes(3.0) if write.resource == f"{kind}s"] == []


@pytest.mark.drill
def test_a_service_that_leads_nowhere_is_told_and_repaired(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    """The pods stay ready, and managedFields do not name who has written the key."""
    with operator(kubeconfig, tmp_path, "first"):
        scene.apply()
        scene.becomes_ready()
        for number, pod in enumerate(sorted(scene.names("pods")), 1):
            scene.place(pod, f"10.0.0.{number}")
        played = ("demo-played", f"{names.ROUTER}-played")
        scene.kubectl("delete", "endpointslice", *played, "-n", scene.namespace)
        scene.becomes("Ready", "True", "AllReady")
    wanted = scene.get("service", "demo")["spec"]["selector"]
    patch = {"spec": {"selector": {"stray": "yes"}}, "metadata": {"managedFields": [{}]}}
    scene.kubectl("patch", "service", "demo", "-n", scene.namespace, "-p", json.dumps(patch))
    slices = ("endpointslices", "-l", f"{names.LABEL_SERVICE_NAME}=demo")
    until(lambda: not scene.get(*slices)["items"][0].get("endpoints"))
    with operator(kubeconfig, tmp_path, "second"):
        until(lambda: scene.get("service", "demo")["spec"]["selector"] == wanted)
        scene.becomes("Ready", "True", "AllReady")
        assert scene.get(*slices)["items"][0]["endpoints"]
    scene.kubectl("delete", "pods", "--all", "-n", scene.namespace, "--force", "--wait=false")
    told = [event["message"] for event in scene.get("events")["items"]]
    assert any(text.startswith("Ready=False: 1 engine is ready, but Service") for text in told)


def test_a_restart_of_the_engines_by_kubectl_stays(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        scene.becomes_ready()
        scene.kubectl("rollout", "restart", "deployment/demo", "-n", scene.namespace)
        time.sleep(3.0)
        template = scene.get("deployment", "demo")["spec"]["template"]
        assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


@pytest.mark.drill
def test_an_operator_of_one_namespace_needs_no_right_outside_of_it(
    scene: Scene, tmp_path: Path
) -> None:
    name, group = "narrow", "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    roles = {scene.namespace: rbac.OPERATOR, SYSTEM: rbac.LEASES}
    scene.kubectl("create", "serviceaccount", name, "-n", SYSTEM)
    for namespace, rules in roles.items():
        metadata = {"name": name, "namespace": namespace}
        common = {"apiVersion": f"{group}/v1", "metadata": metadata}
        role = {"apiGroup": group, "kind": "Role", "name": name}
        scene.kubectl.apply(
            common | {"kind": "Role", "rules": rules},
            common | {"kind": "RoleBinding", "roleRef": role, "subjects": [account]},
        )
    other = Scene(scene.control_plane, "unwatched")
    other.apply()
    kubeconfig = scene.control_plane.kubeconfig_for(name, SYSTEM, tmp_path / "narrow.kubeconfig")
    with operator(kubeconfig, tmp_path, name, "--namespaces", scene.namespace):
        scene.apply()
        scene.becomes_ready()
        scene.kubectl("delete", "service", "demo", "-n", scene.namespace)
        until(lambda: "demo" in scene.names("services"))
        assert other.children() == set()
        assert "status" not in other.get("ym", "demo")


def test_a_standby_leads_at_once_when_the_leader_is_told_to_stop(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path, "leader"):
        standby = Operator(kubeconfig, tmp_path, "standby")
        try:
            standby.daemon.wait_until(lambda: standby.says("probes and metrics"), timeout_s=10)
            time.sleep(1.0)
            assert not standby.says("leading")
        except BaseException:
            standby.daemon.stop()
            raise
    started = time.monotonic()
    try:
        standby.daemon.wait_until(lambda: standby.says("leading"), timeout_s=6)
        assert time.monotonic() - started < 5.0
        scene.apply()
        scene.becomes("EnginesReady", "False", "Unschedulable")
    finally:
        standby.daemon.stop()


@pytest.mark.drill
def test_a_standby_leads_after_the_lease_of_a_killed_leader_expires(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        leader = Operator(kubeconfig, tmp_path, "killed")
        stack.callback(leader.daemon.stop)
        leader.daemon.wait_until(lambda: leader.says("leading"), timeout_s=TIMEOUT_S)
        standby = Operator(kubeconfig, tmp_path, "heir")
        stack.callback(standby.daemon.stop)
        standby.daemon.wait_until(lambda: standby.says("probes and metrics"), timeout_s=10)
        leader.daemon._process.send_signal(signal.SIGKILL)
        standby.daemon.wait_until(lambda: standby.says("leading"), timeout_s=20)
        lease = scene.kubectl.get("lease", names.OPERATOR_LEASE, "-n", SYSTEM)
        assert lease["spec"]["leaseTransitions"] >= 1


async def test_a_stale_writer_is_told_and_a_taken_name_is_never_written(
    scene: Scene,
) -> None:
    api = KubeApi(await load_configuration(str(scene.control_plane.kubeconfig)))
    cluster = KubeCluster(api, ChangeQueue())
    try:
        await _stale_writes(scene, cluster)
    finally:
        await api.close()


async def test_a_long_list_is_read_page_by_page(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "PAGE", "2")
    wanted = {f"m{number}" for number in range(5)}
    for name in wanted:
        scene.apply(name)
    api = KubeApi(await load_configuration(str(scene.control_plane.kubeconfig)))
    try:
        found = await KubeCluster(api, ChangeQueue()).list(
            INFERENCE_MODEL, namespace=scene.namespace
        )
    finally:
        await api.close()
    assert {model["metadata"]["name"] for model in found} == wanted
    assert {(model["apiVersion"], model["kind"]) for model in found} == {
        (names.API_VERSION, names.KIND)
    }


async def _stale_writes(scene: Scene, cluster: KubeCluster) -> None:
    scene.apply()
    model = await cluster.get(INFERENCE_MODEL, namespace=scene.namespace, name="demo")
    assert model is not None
    service = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": scene.namespace},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    }  # fmt: skip
    first = await cluster.apply(service, observed=None)
    scene.kubectl("create", "service", "clusterip", "taken", "--tcp=80:81", "-n", scene.namespace)
    taken = {**service, "metadata": service["metadata"] | {"name": "taken"}}
    taken["spec"] = {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 82}]}
    with pytest.raises(ConflictError):
        await cluster.apply(taken, observed=None)
    labelled = {**service, "metadata": {**service["metadata"], "labels": {"a": "b"}}}
    await cluster.apply(labelled, observed=first)
    with pytest.raises(ConflictError):
        await cluster.apply(service, observed=first)
    with pytest.raises(ConflictError):
        await cluster.delete(first)
    assert await cluster.get(SERVICE, namespace=scene.namespace, name="none") is None
    live = await cluster.get(SERVICE, namespace=scene.namespace, name="s")
    assert live is not None
    await cluster.delete(live)
    assert await cluster.get(SERVICE, namespace=scene.namespace, name="s") is None


def test_the_sample_is_accepted_and_a_bad_spec_is_refused_with_what_to_write(
    scene: Scene,
) -> None:
    sample = Path(__file__).parents[2] / "manifests/samples/demo.yaml"
    scene.kubectl("apply", "-n", scene.namespace, "-f", str(sample))
    model = yaml.safe_load(sample.read_text())
    model["metadata"] |= {"name": "bad", "namespace": scene.namespace}
    model["spec"]["model"]["source"] = "Qwen/Qwen3-0.6B"
    with pytest.raises(KubectlError, match="write hf://ORG/NAME"):
        scene.kubectl.apply(model)


def test_an_autoscaled_model_is_kept_in_its_bounds_through_the_subresource(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply(autoscaling={"min": 2, "max": 3, "target": {"activeRequests": 8}})
        until(lambda: scene.get("ym", "demo")["spec"]["replicas"] == 2)
        scene.kubectl("scale", "ym/demo", "--replicas=9", "-n", scene.namespace)
        until(lambda: scene.get("ym", "demo")["spec"]["replicas"] == 3)

        def reasons() -> list[str]:
            scaling = scene.get("ym", "demo").get("status", {}).get("scaling", {})
            return [d["reason"] for d in scaling.get("lastDecisions", ())]

        told = ["OutOfBounds", "ReplicasOverridden", "OutOfBounds"]
        until(lambda: reasons() == told, reasons)
