"""How far a rollout is and what it waits for: `status.rollout`. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from yaie_api import names
from yaie_operator.cluster import Object, label
from yaie_operator.reconcile.pods import condition_of, worst
from yaie_operator.reconcile.reasons import Reason


class Step(StrEnum):
    """What a rollout is doing."""

    COMPLETE = "Complete"  # every engine runs the current spec and is ready
    STARTING = "Starting"  # engines are missing, and none of an earlier spec is left
    SURGING = "Surging"  # new engines become ready before old ones stop
    REPLACING = "Replacing"  # engines leave their places to their successors, one by one
    RECREATING = "Recreating"  # every engine stops before new ones start
    STOPPED = "Stopped"  # rollout.progressDeadlineSeconds passed


WORDS: Final[Mapping[Reason, str]] = {
    Reason.UNSCHEDULABLE: "unschedulable",
    Reason.IMAGE_PULL_FAILED: "image pull",
    Reason.CRASH_LOOP: "engine failed",
    Reason.CONFIG_ERROR: "configuration",
    Reason.STARTING: "readiness",
}
"""The first words of `status.rollout.blockedBy`."""

BLOCKED_LENGTH: Final = 2048
Report = dict[str, str]


def report(deployment: Object | None, pods: Iterable[Object], *, is_complete: bool) -> Report:
    """What `status.rollout` says. `is_complete`: every engine runs the current spec."""
    if deployment is None:
        return {"hash": "", "step": "", "blockedBy": ""}
    return {
        "hash": label(deployment, names.LABEL_TEMPLATE_HASH),
        "step": step_of(deployment, is_complete=is_complete).value,
        "blockedBy": "" if is_complete else blocked_by(deployment, pods),
    }


def step_of(deployment: Object, *, is_complete: bool) -> Step:
    """What the rollout of a Deployment is doing. `is_complete`: all engines are current."""
    status, strategy = deployment.get("status", {}), deployment["spec"].get("strategy", {})
    if is_complete:
        return Step.COMPLETE
    if condition_of(deployment, "Progressing").get("reason") == "ProgressDeadlineExceeded":
        return Step.STOPPED
    if status.get("replicas", 0) <= status.get("updatedReplicas", 0):
        return Step.STARTING
    if strategy.get("type") == "Recreate":
        return Step.RECREATING
    surge = strategy.get("rollingUpdate", {}).get("maxSurge")
    return Step.REPLACING if surge == 0 else Step.SURGING


def blocked_by(deployment: Object, pods: Iterable[Object]) -> str:
    """What a rollout that is not complete waits for, or ""."""
    current = label(deployment, names.LABEL_TEMPLATE_HASH)
    if refusal := condition_of(deployment, "ReplicaFailure"):
        return f"refused: {refusal['message']}"[:BLOCKED_LENGTH]
    new = (pod for pod in pods if label(pod, names.LABEL_TEMPLATE_HASH) == current)
    if (trouble := worst(new)) is not None:
        return f"{WORDS[trouble.reason]}: {trouble.message}"[:BLOCKED_LENGTH]
    return ""
