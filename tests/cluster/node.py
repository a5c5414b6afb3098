"""A Kubernetes node on this machine: containerd, kubelet, kube-proxy and CoreDNS beside the control
plane, so that pods really run. Ready in about fifteen seconds; needs root and `sandbox.sh`.

    sandbox (own network, processes, mounts)
      10.77.0.1 on lo      the node: API server, kubelet, CoreDNS, NodePorts (on 127.0.0.1 too)
      10.88.0.0/16         pods, each on a routed veth pair (ptp: Services need no bridge netfilter)
      10.96.0.0/16         Services (kube-proxy, iptables)
"""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import cgroups
from cluster import control_plane as control_planes
from cluster.binaries import COREDNS
from cluster.certificates import Authority
from cluster.control_plane import (
    LOOPBACK,
    SERVICE_RANGE,
    ControlPlane,
    KubectlError,
    Layout,
    component_kubeconfig,
)
from cluster.missing import MissingError
from cluster.processes import Daemon, running
from ports import free_port

NODE_NAME = "yaie-test"
NODE_IP = "10.77.0.1"
POD_RANGE = "10.88.0.0/16"
CNI_PLUGINS = Path("/usr/lib/cni")
SANDBOX_IMAGE = "localhost/pause:1"
READY_TIMEOUT_S = 90
IMPORT_TIMEOUT_S = 600
PROGRAMS = ("containerd", "ctr", "runc", "iptables", "ip", "conntrack", "unshare")


@dataclass(frozen=True)
class Node:
    """A cluster with one node."""

    control_plane: ControlPlane
    logs: Path


def check() -> None:
    """Raises MissingError naming the first thing that this machine lacks for a node."""
    if os.geteuid() != 0:
        raise MissingError("the test node needs root")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or not CNI_PLUGINS.is_dir():
        names = ", ".join(missing) or "the CNI plugins"
        raise MissingError(f"{names} not installed: run tests/cluster/install_node.sh")
    if "YAIE_SANDBOX_FOLDER" not in os.environ:
        raise MissingError("the test node runs inside tests/cluster/sandbox.sh only: make e2e")


@contextlib.contextmanager
def run(folder: Path, programs: Path, images: Path) -> Iterator[Node]:
    """A cluster with a Ready node for the length of the block, its files under `folder`.

    Pods may use the images of the OCI layout `images`; there is no registry.
    """
    check()
    _add_node_address()
    with contextlib.ExitStack() as stack:
        started = control_planes.run(folder / "cluster", programs, address=NODE_IP)
        control_plane, authority = stack.enter_context(started)
        layout = Layout(folder / "cluster", programs, NODE_IP)
        socket = stack.enter_context(_containerd(layout))
        _load(images, socket)
        stack.enter_context(_coredns(layout, control_plane))
        kubelet = stack.enter_context(_kubelet(layout, authority, control_plane, socket))
        kubelet.wait_until(lambda: _is_ready(control_plane), timeout_s=READY_TIMEOUT_S)
        # Last: it waits half a minute for a node that does not exist yet.
        stack.enter_context(_kube_proxy(layout, authority, control_plane))
        yield Node(control_plane, layout.logs)


def _load(images: Path, socket: Path) -> None:
    """Import an OCI layout into containerd."""
    importing = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", "-"]
    with subprocess.Popen(["tar", "-C", images, "-c", "."], stdout=subprocess.PIPE) as archive:
        done = subprocess.run(
            importing,
            stdin=archive.stdout,
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr


def _add_node_address() -> None:
    subprocess.run(["ip", "address", "replace", f"{NODE_IP}/32", "dev", "lo"], check=True)
    # Without a route the API server could not begin to call an aggregated API's Service.
    services = ["ip", "route", "replace", SERVICE_RANGE, "dev", "lo", "src", NODE_IP]
    subprocess.run(services, check=True)
    for name in ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet"):
        Path("/proc/sys", name).write_text("1")


@contextlib.contextmanager
def _containerd(layout: Layout) -> Iterator[Path]:
    folder = Path(os.environ["YAIE_SANDBOX_FOLDER"]) / "containerd"
    socket = Path("/run/yaie-containerd.sock")  # short: a socket's path has at most 108 bytes
    plugins = folder / "cni.d"
    plugins.mkdir(parents=True)
    (plugins / "10-pods.conflist").write_text(json.dumps(_pod_network(folder)))
    config = folder / "config.toml"
    config.write_text(_containerd_config(folder, socket, plugins))
    command = [_found("containerd"), "--config", config]
    with running("containerd", command, logs=layout.logs) as daemon:
        daemon.wait_until(socket.exists, timeout_s=30)
        yield socket


def _containerd_config(folder: Path, socket: Path, plugins: Path) -> str:
    return f"""
version = 2
root = "{folder / "root"}"
state = "/run/yaie-containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{plugins}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _pod_network(folder: Path) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(folder / "ipam"),
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


@contextlib.contextmanager
def _coredns(layout: Layout, control_plane: ControlPlane) -> Iterator[Daemon]:
    health = free_port()
    corefile = layout.folder / "Corefile"
    corefile.write_text(
        f""".:53 {{
    bind {NODE_IP}
    errors
    health {LOOPBACK}:{health}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {control_plane.kubeconfig}
    }}
    cache 5
}}
"""
    )
    command = [layout.programs / COREDNS, "-conf", corefile]
    with running(COREDNS, command, logs=layout.logs) as daemon:
        daemon.wait_until(lambda: _is_healthy(health, "/health"), timeout_s=READY_TIMEOUT_S)
        yield daemon


@contextlib.contextmanager
def _kube_proxy(
    layout: Layout, authority: Authority, control_plane: ControlPlane
) -> Iterator[Daemon]:
    name = "kube-proxy"
    metrics, health = free_port(), free_port()
    user = authority.issue(name, f"/CN=system:{name}")
    command = [
        layout.programs / name,
        f"--kubeconfig={component_kubeconfig(layout, authority, control_plane, name, user)}",
        f"--hostname-override={NODE_NAME}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_RANGE}",
        f"--metrics-bind-address={LOOPBACK}:{metrics}",
        f"--healthz-bind-address={LOOPBACK}:{health}",
        # These are the machine's, not the namespace's: leave them alone.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
    with running(name, command, logs=layout.logs) as daemon:
        daemon.wait_until(lambda: _is_healthy(health, "/livez"), timeout_s=READY_TIMEOUT_S)
        yield daemon


@contextlib.contextmanager
def _kubelet(
    layout: Layout, authority: Authority, control_plane: ControlPlane, socket: Path
) -> Iterator[Daemon]:
    user = authority.issue(
        "kubelet", f"/O=system:nodes/CN=system:node:{NODE_NAME}", hosts=[f"IP:{NODE_IP}"]
    )
    resolv_conf = layout.folder / "resolv.conf"
    resolv_conf.write_text("")  # pods ask CoreDNS; the machine's own resolver is out of reach
    config = layout.folder / "kubelet.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": NODE_IP,
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(authority.ca.certificate)},
                },
                "authorization": {"mode": "Webhook"},
                "tlsCertFile": str(user.certificate),
                "tlsPrivateKeyFile": str(user.key),
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": cgroups.create(),
                "failCgroupV1": False,
                "failSwapOn": False,
                "clusterDNS": [NODE_IP],
                "clusterDomain": "cluster.local",
                "resolvConf": str(resolv_conf),
                "containerRuntimeEndpoint": f"unix://{socket}",
                "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
                "healthzPort": 0,
                "imageGCHighThresholdPercent": 100,
                "readOnlyPort": 0,
            }
        )
    )
    command = [
        layout.programs / "kubelet",
        f"--config={config}",
        f"--kubeconfig={component_kubeconfig(layout, authority, control_plane, 'kubelet', user)}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
    ]
    with running("kubelet", command, logs=layout.logs) as daemon:
        yield daemon


def _is_healthy(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _is_ready(control_plane: ControlPlane) -> bool:
    condition = '{.status.conditions[?(@.type=="Ready")].status}'
    try:
        return control_plane.kubectl("get", "node", NODE_NAME, f"-o=jsonpath={condition}") == "True"
    except KubectlError:
        return False


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None  # check() has seen it
    return path
