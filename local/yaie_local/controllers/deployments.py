"""The Deployment controller: decides which pods to create and delete, and the status. Pure.

There are no ReplicaSets: pods belong directly to their Deployment and carry the hash of their
template as a label. A rolling update replaces pods of old hashes within maxSurge and
maxUnavailable.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from yaie_local.objects import (
    condition,
    is_terminating,
    labels_of,
    seconds_of,
    set_condition,
    timestamp,
)
from yaie_operator.cluster import Object

LABEL_HASH: Final = "pod-template-hash"
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names: without vowels, so that no words appear."""


@dataclass(frozen=True)
class PodView:
    """The properties of a pod that decisions depend on."""

    name: str
    is_current: bool
    is_ready: bool = False
    is_available: bool = False
    is_scheduled: bool = True
    is_terminating: bool = False
    restarts: int = 0
    created: str = ""


@dataclass(frozen=True)
class Wanted:
    """Numbers from a Deployment's spec. `surge` and `unavailable` are numbers of pods."""

    replicas: int
    surge: int = 1
    unavailable: int = 0
    recreate: bool = False


@dataclass(frozen=True)
class Decision:
    """How many pods to create from the current template, and the names of pods to delete."""

    create: int = 0
    delete: tuple[str, ...] = ()


def decide(wanted: Wanted, pods: Sequence[PodView]) -> Decision:
    """The next step towards `wanted`; Decision() if there is nothing to do now."""
    alive = [pod for pod in pods if not pod.is_terminating]
    new = [pod for pod in alive if pod.is_current]
    old = [pod for pod in alive if not pod.is_current]
    excess = _first(new, len(new) - wanted.replicas)
    if wanted.recreate:
        leaving = [pod for pod in pods if not pod.is_current]
        missing = 0 if leaving else wanted.replicas - len(new)
        return Decision(max(0, missing), (*(pod.name for pod in old), *excess))
    room = wanted.replicas + wanted.surge - len(alive)
    create = max(0, min(wanted.replicas - len(new), room))
    return Decision(create, (*excess, *_replaceable(wanted, new, old)))


def _replaceable(wanted: Wanted, new: Sequence[PodView], old: Sequence[PodView]) -> list[str]:
    """Old pods that may be deleted now: first unavailable ones, then as many as maxUnavailable
    allows.
    """
    least = wanted.replicas - wanted.unavailable
    waiting = sum(not pod.is_available for pod in new)
    spare = len(new) + len(old) - least - waiting
    broken = _first([pod for pod in old if not pod.is_available], spare)
    available = sum(pod.is_available for pod in (*new, *old))
    working = [pod for pod in old if pod.is_available]
    return [*broken, *_first(working, available - least)]


def _first(pods: Sequence[PodView], count: int) -> list[str]:
    """Names of the `count` pods to delete first, in the order of Kubernetes' ReplicaSet controller:
    unscheduled, not ready, restarted most, youngest.
    """
    young_first = sorted(pods, key=lambda pod: (pod.created, pod.name), reverse=True)
    ranked = sorted(young_first, key=lambda p: (p.is_scheduled, p.is_ready, -p.restarts))
    return [pod.name for pod in ranked[: max(0, count)]]


def wanted_of(deployment: Object) -> Wanted:
    """The numbers of a Deployment, with percentages rounded as in Kubernetes."""
    spec = deployment["spec"]
    replicas = int(spec.get("replicas", 1))
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    surge = _count(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    unavailable = _count(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Wanted(replicas, surge, unavailable, recreate=strategy.get("type") == "Recreate")


def _count(value: int | str, replicas: int, rounded: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounded(int(value[:-1]) * replicas / 100))
    return int(value)


def template_hash(deployment: Object) -> str:
    """Ten letters that change if and only if the pod template changes."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
    letters = []
    for _ in range(10):
        digest, index = divmod(digest, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


def view(pod: Object, current_hash: str, *, now: float, min_ready_s: int = 0) -> PodView:
    """The PodView of a pod at `now` (seconds since the epoch)."""
    ready = condition(pod, "Ready")
    is_ready = ready is not None and ready["status"] == "True"
    ready_for_s = now - seconds_of(ready["lastTransitionTime"]) if ready and is_ready else 0.0
    scheduled = condition(pod, "PodScheduled")
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return PodView(
        name=pod["metadata"]["name"],
        is_current=labels_of(pod).get(LABEL_HASH) == current_hash,
        is_ready=is_ready,
        is_available=is_ready and ready_for_s >= min_ready_s,
        is_scheduled=scheduled is not None and scheduled["status"] == "True",
        is_terminating=is_terminating(pod),
        restarts=sum(status["restartCount"] for status in statuses),
        created=pod["metadata"]["creationTimestamp"],
    )


def status_of(deployment: Object, pods: Sequence[PodView], *, now: float) -> Mapping[str, Any]:
    """The Deployment's status, including conditions."""
    alive = [pod for pod in pods if not pod.is_terminating]
    wanted = wanted_of(deployment)
    available = sum(pod.is_available for pod in alive)
    counts = {
        "replicas": len(alive),
        "updatedReplicas": sum(pod.is_current for pod in alive),
        "readyReplicas": sum(pod.is_ready for pod in alive),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted.replicas - available),
        "terminatingReplicas": len(pods) - len(alive),
    }
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    stamp = timestamp(now)
    for new in (_available(wanted, available), _progressing(deployment, wanted, counts, now)):
        conditions = set_condition(conditions, new, stamp)
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{key: value for key, value in counts.items() if value},
        "conditions": list(conditions),
    }


def _available(wanted: Wanted, available: int) -> dict[str, Any]:
    enough = available >= wanted.replicas - wanted.unavailable
    return {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": f"MinimumReplicas{'Available' if enough else 'Unavailable'}",
        "message": f"{available} of {wanted.replicas} pods are available.",
    }


def _progressing(
    deployment: Object, wanted: Wanted, counts: Mapping[str, int], now: float
) -> dict[str, Any]:
    """The Progressing condition; `lastUpdateTime` is the time of the last progress."""
    old = condition(deployment, "Progressing")
    since = _moved_at(deployment, counts, now)
    limit_s = deployment["spec"].get("progressDeadlineSeconds", 600)
    done = (
        counts["updatedReplicas"] == counts["replicas"] == wanted.replicas
        and counts["availableReplicas"] >= wanted.replicas
    )
    late = not done and now - since > limit_s
    if done and old is not None and old["reason"] == "NewReplicaSetAvailable":
        since = seconds_of(old["lastUpdateTime"])
    status, reason = _progress_reason(done=done, late=late)
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "message": f"{counts['updatedReplicas']} of {wanted.replicas} pods are up to date, "
        f"{counts['availableReplicas']} available.",
        "lastUpdateTime": timestamp(since),
    }


def _moved_at(deployment: Object, counts: Mapping[str, int], now: float) -> float:
    old = deployment.get("status") or {}
    progressing = condition(deployment, "Progressing")
    same = all(old.get(key, 0) == value for key, value in counts.items())
    same = same and old.get("observedGeneration") == deployment["metadata"]["generation"]
    return seconds_of(progressing["lastUpdateTime"]) if same and progressing else now


def _progress_reason(*, done: bool, late: bool) -> tuple[Literal["True", "False"], str]:
    if done:
        return "True", "NewReplicaSetAvailable"
    if late:
        return "False", "ProgressDeadlineExceeded"
    return "True", "ReplicaSetUpdated"
