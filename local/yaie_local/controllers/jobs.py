"""The Job controller: decides whether a pod is to be created or deleted, and the status. Pure.

Only Jobs of one pod at a time that are done when one pod has succeeded. A pod that fails is
followed by another until the Job's backoffLimit; with restartPolicy OnFailure the kubelet starts
its container again in the same pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaie_local.objects import (
    is_finished,
    is_terminating,
    is_true,
    name_of,
    set_condition,
    timestamp,
)
from yaie_operator.cluster import Object

DEFAULT_BACKOFF_LIMIT = 6


@dataclass(frozen=True)
class Decision:
    """Whether to create a pod, and the names of pods to delete."""

    create: bool = False
    delete: tuple[str, ...] = ()


def decide(job: Object, pods: Sequence[Object]) -> Decision:
    """What to do with a Job's pods. A suspended Job has none that runs."""
    active = [pod for pod in pods if not is_finished(pod)]
    if job["spec"].get("suspend"):
        return Decision(delete=tuple(name_of(pod) for pod in active if not is_terminating(pod)))
    if is_done(job) or active or outcome(job, pods):
        return Decision()
    return Decision(create=True)


def is_done(job: Object) -> bool:
    """Whether the status says that the Job has ended."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def outcome(job: Object, pods: Sequence[Object]) -> str:
    """The condition that a Job's pods make true: Complete or Failed; "" if it goes on."""
    phases = [(pod.get("status") or {}).get("phase") for pod in pods]
    if "Succeeded" in phases:
        return "Complete"
    most = job["spec"].get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    return "Failed" if phases.count("Failed") > most else ""


def status_of(job: Object, pods: Sequence[Object], *, now: float) -> Mapping[str, Any]:
    """The Job's status. One that has ended stays as it is, though its pods may be gone."""
    old = job.get("status") or {}
    if is_done(job):
        return old
    phases = [(pod.get("status") or {}).get("phase") for pod in pods]
    counts = {
        "active": sum(not is_finished(pod) for pod in pods),
        "succeeded": phases.count("Succeeded"),
        "failed": phases.count("Failed"),
    }
    status: dict[str, Any] = {key: value for key, value in counts.items() if value}
    status["startTime"] = old.get("startTime", timestamp(now))
    if ended := outcome(job, pods):
        new = {"type": ended, "status": "True"}
        status["conditions"] = set_condition((), new, timestamp(now))
    return status
