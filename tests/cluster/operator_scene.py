"""The operator's process against a real API server, with the operator's own rights and no more.

There is no node: pods stay Pending, and `play_kubelet` marks them as a kubelet would.
"""

import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.audit import OURS, AuditLog, Request
from cluster.control_plane import ControlPlane
from cluster.processes import Daemon
from fakes.fake_cluster import endpoint_slice, inference_model
from yaie_api import names
from yaie_api.resource import crd
from yaie_operator import rbac

SYSTEM = OURS
USER = f"system:serviceaccount:{SYSTEM}:yaie-operator"
TIMEOUT_S = 60.0
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "played"},
    "spec": {"unschedulable": True},
}
"""The scheduler places no pod here."""
COLLECTED_S = 150.0
"""The garbage collector looks for new kinds every 30 s, and waits longer after each failed look."""
SILENT_S = 1.5
"""Three rests of the operator between two looks at a model."""
SETTLED_S = 20.0


@pytest.fixture(scope="module")
def installed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ControlPlane, Path]:
    """The CRD, the operator's ServiceAccount with its rights, and a kubeconfig of it."""
    return control_plane, install(control_plane, tmp_path_factory.mktemp("operator"))


def install(control_plane: ControlPlane, folder: Path) -> Path:
    """Install the CRD and the operator's ServiceAccount with its rights; returns a kubeconfig."""
    kubectl = control_plane.kubectl
    kubectl.apply(
        crd.render(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        *_rights(),
    )
    name = f"crd/{names.PLURAL}.{names.GROUP}"
    kubectl("wait", "--for=condition=Established", name, "--timeout=30s")
    until(lambda: names.SHORT_NAME in kubectl("api-resources", "--cached=false"))
    return control_plane.kubeconfig_for("yaie-operator", SYSTEM, folder / "kubeconfig")


def _rights() -> Iterator[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    api = f"{group}/v1"
    account = {"kind": "ServiceAccount", "name": "yaie-operator", "namespace": SYSTEM}
    meta = {"name": "yaie-operator"}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta | {"namespace": SYSTEM}}
    yield {"apiVersion": api, "kind": "ClusterRole", "metadata": meta, "rules": rbac.OPERATOR}
    router = {"name": names.ROUTER_CLUSTER_ROLE}
    yield {"apiVersion": api, "kind": "ClusterRole", "metadata": router, "rules": rbac.ROUTER}
    lease = {"name": "yaie-leases", "namespace": SYSTEM}
    yield {"apiVersion": api, "kind": "Role", "metadata": lease, "rules": rbac.LEASES}
    for kind, metadata, role in (
        ("ClusterRoleBinding", meta, {"kind": "ClusterRole", "name": "yaie-operator"}),
        ("RoleBinding", lease, {"kind": "Role", "name": "yaie-leases"}),
    ):
        yield {
            "apiVersion": api, "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": group} | role, "subjects": [account],
        }  # fmt: skip


class Operator:
    """One operator process."""

    def __init__(self, kubeconfig: Path, folder: Path, name: str, *flags: str) -> None:
        folder.mkdir(exist_ok=True)
        self.name = name
        self.daemon = Daemon(
            name,
            [
                *(sys.executable, "-m", "yaie_operator", "--kubeconfig", kubeconfig),
                *("--lease-namespace", SYSTEM, "--host", "127.0.0.1", "--port", "0"),
                # What events do not bring must not be mended by the next full list.
                *("--resync-seconds", "3600", "--log-format", "json", *flags),
            ],
            folder / f"{name}.log",
        )

    def metric(self, sample: str) -> float:
        """The value of a sample, such as `yaie_operator_models` or `name{label="value"}`."""
        lines = [json.loads(line) for line in self.daemon.log.read_text().splitlines() if line]
        port = next(line["port"] for line in lines if line["message"] == "probes and metrics")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            text = page.read().decode()
        found = (line for line in text.splitlines() if line.startswith(f"{sample} "))
        return float(next(found).split()[-1])

    def says(self, message: str) -> bool:
        text = self.daemon.log.read_text()
        return any(json.loads(line)["message"] == message for line in text.splitlines() if line)


@contextlib.contextmanager
def operator(
    kubeconfig: Path, folder: Path, name: str = "operator", *flags: str
) -> Iterator[Operator]:
    """Run an operator until the block ends; when that begins, it has taken the Lease."""
    running = Operator(kubeconfig, folder, name, *flags)
    try:
        running.daemon.wait_until(lambda: running.says("leading"), timeout_s=TIMEOUT_S)
        yield running
        repairs = running.metric("yaie_operator_resync_repairs_total")
        assert repairs == 0, "a full list found what no event had told"
    finally:
        running.daemon.stop()
    assert not running.says("reconcile failed"), running.daemon.tail()
    assert '"logger": "kopf.objects"' not in running.daemon.log.read_text()


class Scene:
    """A namespace of its own and what a test does in it."""

    def __init__(self, control_plane: ControlPlane, prefix: str) -> None:
        self.control_plane = control_plane
        self.kubectl = control_plane.kubectl
        self.namespace = control_plane.new_namespace(prefix)

    def apply(self, name: str = "demo", **spec: Any) -> None:
        model = inference_model(name, **spec)
        model["metadata"]["namespace"] = self.namespace
        self.kubectl.apply(model)

    def get(self, *what: str) -> Any:
        return self.kubectl.get(*what, "-n", self.namespace)

    def names(self, kind: str) -> set[str]:
        return {item["metadata"]["name"] for item in self.get(kind)["items"]}

    def children(self) -> set[str]:
        kinds = (
            "deployments",
            "services",
            "configmaps",
            "secrets",
            "rolebindings",
            "poddisruptionbudgets",
        )
        found = self.get(",".join((*kinds, "serviceaccounts", "pods")))["items"]
        ours = (o for o in found if names.LABEL_MANAGED_BY in o["metadata"].get("labels", {}))
        return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in ours}

    def condition(self, kind: str, name: str = "demo") -> tuple[str, str]:
        status = self.get("ym", name).get("status", {})
        found = [c for c in status.get("conditions", ()) if c["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def becomes(self, kind: str, status: str, reason: str, name: str = "demo") -> None:
        until(lambda: self.condition(kind, name) == (status, reason), lambda: self.get("ym", name))

    def play_kubelet(self) -> None:
        """Mark every pod as running and ready, and have the Services lead to them: without a node
        Kubernetes takes no pod into its own EndpointSlices.
        """
        since = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        patch = json.dumps({"status": {"phase": "Running", "conditions": [condition]}})
        pods = self.get("pods")["items"]
        for pod in pods:
            name = pod["metadata"]["name"]
            self.kubectl(
                "patch", "pod", name, "-n", self.namespace, "--subresource=status", "-p", patch
            )
        services = self.get("services")["items"]
        self.kubectl.apply(*(_played_slice(service, pods) for service in services))

    def place(self, pod: str, address: str) -> None:
        """Mark a pod as ready on a node, so that Kubernetes' own EndpointSlices have it. It stays
        until it is deleted by force.
        """
        self.kubectl.apply(NODE)
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": NODE["metadata"]["name"]},
        }
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
        status = {"podIP": address, "podIPs": [{"ip": address}]}
        here = ("-n", self.namespace, "--subresource=status")
        self.kubectl("patch", "pod", pod, *here, "-p", json.dumps({"status": status}))

    def becomes_ready(self, name: str = "demo") -> None:
        self.becomes("EnginesReady", "False", "Unschedulable", name)
        until(lambda: len(self.names("pods")) >= 2)
        self.play_kubelet()
        self.becomes("Ready", "True", "AllReady", name)

    def writes(self, seconds: float) -> list[Request]:
        """What the operator writes here during some seconds in which nothing happens, once its
        last words on what did happen are out (Events follow the status). In other tests'
        namespaces, which are being deleted, its writes are refused.
        """
        audit = self.control_plane.audit
        if audit is None:
            pytest.skip("a cluster of the user keeps no audit log that this test could read")
        until(lambda: self._is_silent(audit, SILENT_S), timeout_s=SETTLED_S)
        mark = audit.mark()
        time.sleep(seconds)
        return self.of_here(audit.writes_since(mark, user=USER))

    def _is_silent(self, audit: AuditLog, seconds: float) -> bool:
        mark = audit.mark()
        time.sleep(seconds)
        return not self.of_here(audit.writes_since(mark, user=USER))

    def of_here(self, writes: Iterable[Request]) -> list[Request]:
        """Those of the writes that are in this namespace."""
        return [write for write in writes if write.namespace == self.namespace]


def _played_slice(service: Any, pods: Iterable[Any]) -> dict[str, Any]:
    """An EndpointSlice that leads to the pods of a Service."""
    metadata, selector = service["metadata"], service["spec"]["selector"].items()
    chosen = [
        pod["metadata"]["name"] for pod in pods if selector <= pod["metadata"]["labels"].items()
    ]
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    made = endpoint_slice(metadata["name"], chosen, metadata["labels"])
    meta = made["metadata"] | {"name": f"{metadata['name']}-played", "ownerReferences": [owner]}
    return made | {"metadata": meta | {"namespace": metadata["namespace"]}}


@pytest.fixture
def scene(installed: tuple[ControlPlane, Path], request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(installed[0], "operator")
    yield scene
    scene.kubectl("delete", "ns", scene.namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture
def kubeconfig(installed: tuple[ControlPlane, Path]) -> Path:
    return installed[1]


def until(
    holds: Callable[[], bool],
    tell: Callable[[], Any] = lambda: "",
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.1)
