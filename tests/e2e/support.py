"""What the scenarios share: a cluster with the chart installed, models, and clients of the router.

Everything goes the way of a user: kubectl, helm, the `yaie-router` Service, the openai package.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from cluster.audit import AuditLog
from cluster.control_plane import LOOPBACK, ControlPlane, Kubectl, KubectlError
from ports import free_port
from yaie_api import names

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "manifests" / "samples" / "demo.yaml"
OPERATOR_NAMESPACE = "yaie-system"
OPERATOR_USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:yaie-operator"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
READY_TIMEOUT_S = 240
POLL_S = 0.2


@dataclass(frozen=True)
class Cluster:
    """A cluster in which the chart is installed."""

    control_plane: ControlPlane
    node_ports: bool
    """NodePorts answer on 127.0.0.1; otherwise `kubectl port-forward` has to help."""

    @property
    def kubectl(self) -> Kubectl:
        return self.control_plane.kubectl

    @property
    def audit(self) -> AuditLog | None:
        return self.control_plane.audit

    @contextlib.contextmanager
    def namespace(self, prefix: str) -> Iterator[str]:
        """A namespace that admits restricted pods only, deleted with all that is in it."""
        name = self.control_plane.new_namespace(prefix)
        self.kubectl("label", "namespace", name, RESTRICTED)
        try:
            yield name
        finally:
            self.kubectl("delete", "ym", "--all", "-n", name)
            self.kubectl("delete", "namespace", name, "--wait=false")

    @contextlib.contextmanager
    def client(self, namespace: str) -> Iterator[OpenAI]:
        """The official client, pointed at the namespace's router."""
        with (
            self._router_port(namespace) as port,
            OpenAI(
                base_url=f"http://{LOOPBACK}:{port}/v1",
                api_key="none",
                max_retries=0,
                timeout=120,
            ) as client,
        ):
            yield client

    @contextlib.contextmanager
    def _router_port(self, namespace: str) -> Iterator[int]:
        if self.node_ports:
            service = self.kubectl.get("service", names.ROUTER, "-n", namespace)
            yield service["spec"]["ports"][0]["nodePort"]
            return
        port = free_port()
        with self._port_forward(namespace, port):
            yield port

    @contextlib.contextmanager
    def _port_forward(self, namespace: str, port: int) -> Iterator[None]:
        target = ["-n", namespace, f"service/{names.ROUTER}", f"{port}:{names.HTTP_PORT}"]
        kubeconfig = ["--kubeconfig", str(self.kubectl.kubeconfig)]
        with subprocess.Popen(
            [self.kubectl.program, *kubeconfig, "port-forward", *target],
            stdout=subprocess.PIPE,
            text=True,
        ) as forward:
            assert forward.stdout is not None
            forward.stdout.readline()  # "Forwarding from …": it listens
            try:
                yield
            finally:
                forward.terminate()


@dataclass(frozen=True)
class Demo:
    """The sample model in a namespace of its own."""

    cluster: Cluster
    namespace: str
    name: str = "demo"

    def deploy(self) -> None:
        """`kubectl apply -f manifests/samples/demo.yaml`, and wait for it."""
        self.cluster.kubectl("apply", "-f", SAMPLE, "-n", self.namespace)
        self.wait_ready()

    def wait_ready(self) -> None:
        self.cluster.kubectl(
            *("wait", "--for=condition=Ready", f"ym/{self.name}", "-n", self.namespace),
            f"--timeout={READY_TIMEOUT_S}s",
            timeout_s=READY_TIMEOUT_S + 10,
        )

    def scale(self, replicas: int) -> None:
        """`kubectl scale`, and wait until that many engines, and no other, run."""
        scale = ("scale", f"ym/{self.name}", f"--replicas={replicas}", "-n", self.namespace)
        self.cluster.kubectl(*scale)
        until(
            lambda: (
                self.get()["status"].get("ready") == f"{replicas}/{replicas}"
                and len(self.pods()) == replicas
            ),
            f"{replicas} engines",
        )
        self.wait_ready()

    def get(self) -> Any:
        return self.cluster.kubectl.get("ym", self.name, "-n", self.namespace)

    def condition(self, kind: str) -> dict[str, str]:
        """A condition of the model; empty before the operator has written it."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def pods(self) -> list[str]:
        """Names of the engine pods, those that are going away included."""
        selector = (
            f"{names.LABEL_MODEL}={self.name},{names.LABEL_COMPONENT}={names.COMPONENT_ENGINE}"
        )
        found = self.cluster.kubectl.get("pods", "-l", selector, "-n", self.namespace)
        return [pod["metadata"]["name"] for pod in found["items"]]

    def client(self) -> contextlib.AbstractContextManager[OpenAI]:
        return self.cluster.client(self.namespace)


@dataclass(frozen=True)
class Answer:
    """What one chat request brought."""

    text: str
    pod: str
    """The engine that answered, as the router says."""
    prompt_tokens: int
    cached_tokens: int
    finish_reason: str


def ask(client: OpenAI, prompt: str, *, model: str = "demo", max_tokens: int = 16) -> Answer:
    """One chat request, not streamed."""
    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=max_tokens,
        temperature=0,
    )
    reply = raw.parse()
    assert reply.usage is not None
    details = reply.usage.prompt_tokens_details
    return Answer(
        text=reply.choices[0].message.content or "",
        pod=raw.headers[names.HEADER_ENDPOINT],
        prompt_tokens=reply.usage.prompt_tokens,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
        finish_reason=reply.choices[0].finish_reason,
    )


def until(is_so: Callable[[], object], what: str, *, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Poll until `is_so` is true. Raises TimeoutError that says what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s in vain for {what}")
        time.sleep(POLL_S)


def install(control_plane: ControlPlane, settings: dict[str, Any]) -> None:
    """`helm upgrade --install yaie charts/yaie`, and wait until the operator is available."""
    pairs = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    values = [word for pair in pairs for word in ("--set-json", pair)]
    subprocess.run(
        [
            *(control_plane.programs / "helm", "--kubeconfig", control_plane.kubeconfig),
            *("upgrade", "--install", "yaie", ROOT / "charts" / "yaie"),
            *("--namespace", OPERATOR_NAMESPACE, *values),
        ],
        check=True,
        timeout=120,
    )
    rollout = ("rollout", "status", "deployment/yaie-operator", "-n", OPERATOR_NAMESPACE)
    control_plane.kubectl(*rollout, "--timeout=120s", timeout_s=130)


def state(cluster: Cluster) -> str:
    """What is going on in the cluster, for the report of a failed test."""
    looks = [
        ("get", "ym,deployments,pods,services", "-A", "-o", "wide"),
        ("describe", "ym", "-A"),
        ("describe", "pods", "-A"),
        ("logs", "deployment/yaie-operator", "-n", OPERATOR_NAMESPACE, "--tail=60"),
    ]
    return "\n\n".join(f"$ kubectl {' '.join(look)}\n{_look(cluster, look)}" for look in looks)


def _look(cluster: Cluster, look: tuple[str, ...]) -> str:
    try:
        return cluster.kubectl(*look)
    except (KubectlError, subprocess.TimeoutExpired) as error:
        return str(error)
