"""Makes a pod's status from its container's state. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from yaie_local.objects import is_true, set_condition, timestamp
from yaie_operator.cluster import Object


@dataclass(frozen=True)
class ContainerState:
    """State of a container; `state` and `last` have the form of `containerStatuses`."""

    state: Mapping[str, Any]
    last: Mapping[str, Any] | None = None
    restarts: int = 0
    is_started: bool = False
    is_ready: bool = False

    @classmethod
    def creating(cls) -> Self:
        return cls({"waiting": {"reason": "ContainerCreating"}})

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    def waiting(self, reason: str, message: str) -> "ContainerState":
        waiting = {"waiting": {"reason": reason, "message": message}}
        return replace(self, state=waiting, is_started=False, is_ready=False)

    def running(self, now: float) -> "ContainerState":
        running = {"running": {"startedAt": timestamp(now)}}
        return replace(self, state=running, is_started=False, is_ready=False)

    def terminated(self, code: int, reason: str, message: str, now: float) -> "ContainerState":
        ended: dict[str, Any] = {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": reason,
            "message": message,
            "startedAt": self.state.get("running", {}).get("startedAt", timestamp(now)),
            "finishedAt": timestamp(now),
        }
        if code < 0:
            ended["signal"] = -code
        state = {"terminated": ended}
        return replace(self, state=state, last=state, is_started=False, is_ready=False)


def unscheduled(pod: Object, message: str, now: float) -> Mapping[str, Any]:
    """Status of a pod that waits for GPUs or an address."""
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    old = (pod.get("status") or {}).get("conditions") or ()
    return {"phase": "Pending", "conditions": set_condition(old, waiting, timestamp(now))}


def placed(pod: Object, container: ContainerState, address: str, now: float) -> Mapping[str, Any]:
    """Status of a pod that has an address."""
    old = pod.get("status") or {}
    stamp = timestamp(now)
    started_once = container.is_running or container.last is not None
    unready = {"reason": "ContainersNotReady", "message": why_unready(container)}
    started = {"status": "True"} if container.is_ready else {"status": "False", **unready}
    conditions = old.get("conditions") or ()
    for new in (
        {"type": "PodScheduled", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", **started},
        {"type": "Ready", **started, **(_closed_gate(pod) if container.is_ready else {})},
    ):
        conditions = set_condition(conditions, new, stamp)
    return {
        "phase": "Running" if started_once else "Pending",
        "conditions": list(conditions),
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": old.get("startTime", stamp),
        "containerStatuses": [_container_status(pod, container)],
    }


def _closed_gate(pod: Object) -> dict[str, str]:
    """The Ready condition's fields while a readiness gate is closed; {}: none is."""
    gates = pod["spec"].get("readinessGates") or ()
    closed = [kind for gate in gates if not is_true(pod, kind := gate["conditionType"])]
    if not closed:
        return {}
    message = f'the status of pod readiness gate "{closed[0]}" is not "True"'
    return {"status": "False", "reason": "ReadinessGatesNotReady", "message": message}


def why_unready(container: ContainerState) -> str:
    """Message for a pod that is not ready."""
    waiting = container.state.get("waiting")
    if waiting is not None:
        return f"{waiting['reason']}: {waiting.get('message', '')}".removesuffix(": ")
    if "terminated" in container.state:
        return "the container has ended"
    return "the process has not become ready yet"


def _container_status(pod: Object, container: ContainerState) -> dict[str, Any]:
    spec = pod["spec"]["containers"][0]
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": container.is_ready,
        "started": container.is_started,
        "restartCount": container.restarts,
        "state": dict(container.state),
        "lastState": dict(container.last or {}),
    }
