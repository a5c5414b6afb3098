"""Explains why a pod is not ready, from the pod alone. Pure.

Messages omit container ids, restart counts and back-off times, because every change of a message
would be a write to the API server.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from yaie_api.resource import stages
from yaie_operator.cluster import Object
from yaie_operator.reconcile.reasons import ConditionState, Reason, false

_PULL: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_DENIED: Final = re.compile(
    r"\b40[13]\b|unauthorized|authorization|access (?:is )?denied|credentials", re.IGNORECASE
)
_IMAGE: Final = re.compile(r'\bimage "([^"]+)"')
_CONTAINER_ID: Final = re.compile(r'\bcontainer "[0-9a-f]{64}"')
_NO_SOURCE: Final = 'mkdir ""'
_NO_IMAGE_VOLUMES: Final = (
    "the container runtime of its node mounts no images as volumes; update it (containerd 2.1, "
    "CRI-O 1.31 or newer), or take the weights from another source, with cache.mode: pvc."
)
"""An older containerd passes over the image and looks for a folder without a name."""
_CONFIG: Final = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_BEING_CREATED: Final = frozenset({"ContainerCreating", "PodInitializing"})
_URGENCY: Final = (
    Reason.CRASH_LOOP,
    Reason.IMAGE_PULL_FAILED,
    Reason.CONFIG_ERROR,
    Reason.UNSCHEDULABLE,
    Reason.STARTING,
)
_EXPLANATION_LENGTH: Final = 1000
_ERRORS: Final = frozenset({"error", "critical"})
_USAGE_HINT: Final = re.compile(r"See .* --help|usage: .*", re.IGNORECASE)


def is_draining(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Object) -> bool:
    return not is_draining(pod) and condition_of(pod, "Ready").get("status") == "True"


def worst(pods: Iterable[Object]) -> ConditionState | None:
    """The most urgent diagnosis among pods that are not ready; None if there are no such pods."""
    waiting = sorted(
        (pod for pod in pods if not is_draining(pod) and not is_ready(pod)),
        key=lambda pod: str(pod["metadata"]["name"]),
    )
    diagnoses = [diagnose(pod) for pod in waiting]
    return min(diagnoses, key=lambda f: _URGENCY.index(f.reason), default=None)


def diagnose(pod: Object) -> ConditionState:
    """The reason why a pod is not ready."""
    name = pod["metadata"]["name"]
    for status in pod.get("status", {}).get("containerStatuses", ()):
        if (found := _container(pod, status)) is not None:
            return found
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        why = scheduled.get("message") or "the scheduler gives no reason"
        told = _advised(why, "free or add a node, or ask for less in spec.resources")
        return false(Reason.UNSCHEDULABLE, f"Pod {name} {stages.NO_NODE}: {told}")
    if not scheduled:
        return false(Reason.STARTING, f"Pod {name} {stages.SCHEDULING}; look again in a moment.")
    if _is_being_created(pod):
        return false(Reason.STARTING, f"Pod {name} {stages.PULLING}; wait.")
    if condition_of(pod, "ContainersReady").get("status") == "True":
        return false(Reason.STARTING, f"Pod {name} {stages.UNREACHED}; wait.")
    return false(
        Reason.STARTING, f"Pod {name} {stages.LOADING} and is not ready to answer yet; wait."
    )


def _is_being_created(pod: Object) -> bool:
    """Whether a container has not started yet: its image is pulled and its volumes are mounted."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    waiting = (one.get("state", {}).get("waiting", {}) for one in statuses)
    return any(one.get("reason") in _BEING_CREATED for one in waiting)


def scheduler_says(pod: Object) -> str:
    """Why a pod has no node, in the scheduler's words."""
    return str(condition_of(pod, "PodScheduled").get("message", "")).rstrip(". ")


def _container(obj: Object, status: Mapping[str, Any]) -> ConditionState | None:
    pod = obj["metadata"]["name"]
    waiting = status.get("state", {}).get("waiting", {})
    reason, detail = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL:
        named = _IMAGE.search(detail)  # it may be that of a volume
        image = named[1] if named else status.get("image", "")
        told = f"Pod {pod} cannot get its image {image}: {_pull_advice(detail)}."
        return false(Reason.IMAGE_PULL_FAILED, told)
    if reason in _CONFIG:
        why = _CONTAINER_ID.sub("the container", detail or reason)
        told = _advised(why, "create what is missing, or correct the spec")
        if _NO_SOURCE in detail and _has_image_volume(obj):
            told = _NO_IMAGE_VOLUMES
        return false(Reason.CONFIG_ERROR, f"Pod {pod} cannot start: {told}")
    ended = last_end(status)
    if ended and (status.get("restartCount", 0) >= 1 or reason == "CrashLoopBackOff"):
        return false(Reason.CRASH_LOOP, _crash(pod, status, ended))
    return None


def _has_image_volume(pod: Object) -> bool:
    return any("image" in volume for volume in pod.get("spec", {}).get("volumes", ()))


def _pull_advice(detail: str) -> str:
    """What to do about an image that does not come, by what the container runtime says of it."""
    if _DENIED.search(detail):
        return (
            "its registry wants credentials, or refuses those it got; name a Secret of the type "
            "kubernetes.io/dockerconfigjson in spec.podTemplate.spec.imagePullSecrets, or correct "
            "the image's name"
        )
    return "load it on the node or correct its name"


def _advised(why: str, advice: str) -> str:
    """An explanation of others with what to do, unless it says that itself, as our kubelet's do."""
    return why if ";" in why else f"{why.rstrip('. ')}; {advice}."


def last_end(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container's last termination: the current one, or the one before its restart."""
    ended: Mapping[str, Any] = (
        status.get("state", {}).get("terminated")
        or status.get("lastState", {}).get("terminated")
        or {}
    )
    return ended


def _crash(pod: str, status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    """The message for a crashed container, with the sentence that its process left."""
    how = ended.get("reason") or "Error"
    text = f"Pod {pod} ended ({how}, exit code {ended.get('exitCode', 'unknown')}) and is restarted"
    why = explanation(ended.get("message", ""))
    container = status.get("name", "")
    see = f"`kubectl logs {pod} -c {container} --previous`, or `yaie logs {pod}` under `yaie up`"
    return f"{text}: {why.removesuffix('.')} (see {see})" if why else f"{text}; see {see}"


def explanation(message: str) -> str:
    """What a termination message says about the end; "" if it says nothing about it.

    The message is the sentence that the process left (`yaie_api.termination`). If it left none, it
    is the end of its log: then the last error that was logged counts, else the last line that is
    not of our log. A hint where to read about flags, and what went well before the end, do not.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    told = [(line, _log_entry(line)) for line in lines if not _USAGE_HINT.fullmatch(line)]
    errors = [_error(entry) for _, entry in told if entry is not None]
    plain = [line for line, entry in told if entry is None]
    last = [found for found in errors if found][-1:] or plain[-1:]
    return last[0][:_EXPLANATION_LENGTH] if last else ""


def _log_entry(line: str) -> Mapping[str, Any] | None:
    """A line of our JSON log; None for any other line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "message" in entry else None


def _error(entry: Mapping[str, Any]) -> str:
    """What a line of our log says about an error; "" if it is about something else."""
    if entry.get("level") not in _ERRORS:
        return ""
    raised = str(entry.get("exception", "")).strip().rpartition("\n")[2]
    return str(entry.get("reason") or entry.get("error") or raised or entry["message"])


def condition_of(obj: Object, kind: str) -> Mapping[str, Any]:
    """A pod's, Deployment's or Job's condition of a type; {} if it has none."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})
