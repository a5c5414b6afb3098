"""Says why the weights of a model are not stored yet, from the pod of the download. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from yaie_api.download.messages import Progress
from yaie_operator.cluster import Object
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.observe import ModelView
from yaie_operator.reconcile.pods import (
    diagnose,
    explanation,
    is_draining,
    last_end,
    scheduler_says,
)
from yaie_operator.reconcile.reasons import ConditionState, Reason, false
from yaie_operator.resources.mounts import claim_name, object_name


def why_awaited(
    model: ServedModel, view: ModelView, claim: Object, progress: Progress | None
) -> ConditionState:
    """Why the weights are not stored yet."""
    if model.spec.suspend:
        return false(
            Reason.SUSPENDED, "spec.suspend is true; set it to false to go on with the download."
        )
    pods = [pod for pod in view.downloads if not is_draining(pod)]
    if not pods:
        told = f"The Job {object_name(model.name)} is being started; wait."
        return false(Reason.DOWNLOADING, told)
    pod = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    is_moving = progress is not None and progress.bytes_per_second > 0
    if not is_moving and (failure := _failure(pod)):
        return false(Reason.DOWNLOAD_FAILED, f"{failure} {_KEPT}")
    if phase(pod) in {"Running", "Succeeded"}:
        how_far = f": {progress}" if progress is not None else ""
        told = f"{model.spec.model.source} is being downloaded{how_far}; wait."
        return false(Reason.DOWNLOADING, told)
    return _unstarted(model, pod, claim)


def _unstarted(model: ServedModel, pod: Object, claim: Object) -> ConditionState:
    """Why the download's pod does not run yet."""
    told = diagnose(pod)
    if told.reason == Reason.UNSCHEDULABLE and phase(claim) != "Bound":
        return false(
            Reason.CLAIM_PENDING,
            f"No volume for the PersistentVolumeClaim {claim_name(model)} yet "
            f"({scheduler_says(pod)}); wait, or name a class that exists in cache.storageClass, or "
            "a claim in cache.claim.",
        )
    if told.reason == Reason.STARTING:
        name = pod["metadata"]["name"]
        return false(Reason.DOWNLOADING, f"Pod {name} of the download starts; wait.")
    return false(told.reason, f"Download: {told.message}")


_SIGNALS: Final = 128
"""An exit code above it is that of a process which a signal ended, a lack of memory for example."""
_KEPT: Final = (
    "It is tried again by itself and goes on where it was; wait, or correct what it names."
)


def _failure(pod: Object) -> str:
    """The sentence with which the last try ended; "" if none has failed."""
    for status in containers(pod):
        ended = last_end(status)
        if ended and ended.get("exitCode"):
            code = ended["exitCode"]
            # A killed process leaves no sentence: the end of its log says how far it was.
            was_killed = code > _SIGNALS
            told = "" if was_killed else explanation(ended.get("message") or "")
            return told or (
                f"The download ended ({ended.get('reason', 'Error')}, exit code {code}); see "
                f"`kubectl logs {pod['metadata']['name']} --previous`."
            )
    return ""


def containers(pod: Object) -> list[Mapping[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses") or ())


def phase(obj: Object) -> str:
    return str(obj.get("status", {}).get("phase", ""))
