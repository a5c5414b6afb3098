"""A real Kubernetes control plane on this machine's loopback: etcd, API server, controller manager
and scheduler. Ready in about five seconds; nothing of it survives the block that started it.

Without a node no pod ever runs here, but CRDs, CEL, server-side apply, RBAC, garbage collection,
Leases and the audit log are the real ones. `node.py` adds the node.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.audit import POLICY, AuditLog
from cluster.certificates import Authority, Pair, certificate_user, kubeconfig
from cluster.processes import Daemon, running
from ports import free_port

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE_IP = "10.96.0.1"
READY_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
Object = Mapping[str, Any]


class KubectlError(RuntimeError):
    """kubectl failed; the message is what it printed, so that tests can read the API's refusal."""


@dataclass(frozen=True)
class Kubectl:
    """The kubectl command, bound to a cluster and a user."""

    program: Path
    kubeconfig: Path

    def __call__(
        self, *arguments: str | Path, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """Run it and return what it printed. Raises KubectlError when it fails."""
        done = subprocess.run(
            [self.program, "--kubeconfig", self.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """`kubectl get … -o json`, parsed."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def apply(self, *objects: Object, server_side: bool = True) -> None:
        """Apply objects given as JSON mappings."""
        flags = ["--server-side"] if server_side else []
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self("apply", *flags, "-f", "-", stdin=content)


@dataclass(frozen=True)
class ControlPlane:
    """A running API server and how to reach it as its administrator."""

    server: str
    kubeconfig: Path
    kubectl: Kubectl
    audit: AuditLog | None
    """None on a cluster that is not ours (YAIE_TEST_KUBECONFIG)."""
    programs: Path
    """Folder with kubectl, helm and the rest."""

    def kubeconfig_for(self, service_account: str, namespace: str, path: Path) -> Path:
        """Write a kubeconfig of a ServiceAccount, to act with its rights alone (1 h)."""
        token = self.kubectl("create", "token", service_account, "-n", namespace).strip()
        content = json.loads(self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        content["users"][0]["user"] = {"token": token}
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return path

    def new_namespace(self, prefix: str) -> str:
        """Create an empty namespace that no other test uses."""
        name = f"{prefix}-{time.monotonic_ns()}"
        self.kubectl("create", "namespace", name)
        return name


@dataclass(frozen=True)
class Layout:
    """Where a control plane keeps its files and listens."""

    folder: Path
    programs: Path
    address: str
    """Address that clients inside the cluster reach; loopback without a node."""

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


@contextlib.contextmanager
def run(
    folder: Path, programs: Path, *, address: str = LOOPBACK, extra_hosts: Sequence[str] = ()
) -> Iterator[tuple[ControlPlane, Authority]]:
    """A control plane for the length of the block, everything of it under `folder`."""
    layout = Layout(folder, programs, address)
    layout.logs.mkdir(parents=True)
    authority = Authority(folder / "pki")
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(_etcd(layout))
        control_plane = stack.enter_context(_api_server(layout, authority, etcd, extra_hosts))
        stack.enter_context(_controller_manager(layout, authority, control_plane))
        stack.enter_context(_scheduler(layout, authority, control_plane))
        _wait_for_service_accounts(control_plane)
        yield control_plane, authority


@contextlib.contextmanager
def _etcd(layout: Layout) -> Iterator[str]:
    client, peer = free_port(), free_port()
    url = f"http://{LOOPBACK}:{client}"
    peer_url = f"http://{LOOPBACK}:{peer}"
    command = [
        layout.programs / "etcd",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",  # a test's data need not survive the machine
    ]
    with running("etcd", command, logs=layout.logs):
        yield url


@contextlib.contextmanager
def _api_server(
    layout: Layout, authority: Authority, etcd: str, extra_hosts: Sequence[str]
) -> Iterator[ControlPlane]:
    port = free_port()
    addresses = dict.fromkeys([LOOPBACK, layout.address, FIRST_SERVICE_IP, *extra_hosts])
    hosts = [f"IP:{address}" for address in addresses]
    hosts += ["DNS:localhost", "DNS:kubernetes.default.svc"]
    serving = authority.issue("apiserver", "/CN=kube-apiserver/O=system:masters", hosts=hosts)
    server = f"https://{LOOPBACK}:{port}"
    audit_log = layout.folder / "audit.log"
    command = [
        layout.programs / "kube-apiserver",
        *_api_server_flags(layout, authority, serving, etcd),
        f"--secure-port={port}",
        f"--audit-log-path={audit_log}",
    ]
    with running("kube-apiserver", command, logs=layout.logs) as daemon:
        control_plane = _as_admin(layout, authority, server, AuditLog(audit_log))
        daemon.wait_until(lambda: _answers(control_plane), timeout_s=READY_TIMEOUT_S)
        yield control_plane


def _api_server_flags(layout: Layout, authority: Authority, serving: Pair, etcd: str) -> list[str]:
    policy = layout.folder / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    # The `kubernetes` Service cannot point to a loopback address; without a node nobody needs it.
    alone = layout.address == LOOPBACK
    bind = LOOPBACK if alone else "0.0.0.0"
    return [
        f"--etcd-servers={etcd}",
        f"--bind-address={bind}",
        f"--advertise-address={layout.address}",
        *(["--endpoint-reconciler-type=none"] if alone else []),
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged",
        # Stricter than most clusters, as OpenShift is: what works here works there.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        f"--client-ca-file={authority.ca.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--service-account-key-file={authority.service_account_key}",
        f"--service-account-signing-key-file={authority.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-client-certificate={serving.certificate}",
        f"--kubelet-client-key={serving.key}",
        # By the node's name `logs`, `exec` and `port-forward` would fail: nothing resolves it.
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={policy}",
    ]


@contextlib.contextmanager
def _controller_manager(
    layout: Layout, authority: Authority, control_plane: ControlPlane
) -> Iterator[Daemon]:
    name = "kube-controller-manager"
    user = authority.issue(name, f"/CN=system:{name}")
    port = free_port()
    command = [
        layout.programs / name,
        f"--kubeconfig={component_kubeconfig(layout, authority, control_plane, name, user)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={authority.ca.certificate}",
        f"--service-account-private-key-file={authority.service_account_key}",
        "--horizontal-pod-autoscaler-sync-period=2s",  # 15 s by default
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # Without a kubelet, it would call the pods that tests play on a node not ready.
        *(["--controllers=*,-node-lifecycle-controller"] if layout.address == LOOPBACK else []),
    ]
    with running(name, command, logs=layout.logs) as daemon:
        yield daemon


@contextlib.contextmanager
def _scheduler(
    layout: Layout, authority: Authority, control_plane: ControlPlane
) -> Iterator[Daemon]:
    name = "kube-scheduler"
    user = authority.issue(name, f"/CN=system:{name}")
    port = free_port()
    command = [
        layout.programs / name,
        f"--kubeconfig={component_kubeconfig(layout, authority, control_plane, name, user)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--leader-elect=false",
    ]
    with running(name, command, logs=layout.logs) as daemon:
        yield daemon


def component_kubeconfig(
    layout: Layout, authority: Authority, control_plane: ControlPlane, name: str, user: Pair
) -> Path:
    """The kubeconfig of one of the cluster's own components."""
    return kubeconfig(
        layout.folder / f"{name}.kubeconfig",
        server=control_plane.server,
        ca=authority.ca.certificate,
        user=certificate_user(user),
    )


def _as_admin(layout: Layout, authority: Authority, server: str, audit: AuditLog) -> ControlPlane:
    admin = authority.issue("admin", "/CN=admin/O=system:masters")
    path = kubeconfig(
        layout.folder / "admin.kubeconfig",
        server=server,
        ca=authority.ca.certificate,
        user=certificate_user(admin),
    )
    kubectl = Kubectl(layout.programs / "kubectl", path)
    return ControlPlane(server, path, kubectl, audit, layout.programs)


def _answers(control_plane: ControlPlane) -> bool:
    try:
        return control_plane.kubectl("get", "--raw", "/readyz", timeout_s=5) == "ok"
    except (KubectlError, subprocess.TimeoutExpired):
        return False


def _wait_for_service_accounts(control_plane: ControlPlane) -> None:
    """Until the controller manager has made `default/default`, no pod can be created."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            control_plane.kubectl("get", "serviceaccount", "default", "-n", "default")
        except KubectlError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
