"""Decides whether `rollout.strategy: Auto` goes on in place. Pure.

    surging ──no room for PATIENCE_S, and the new engine fits where an old one runs──▶ in place
       ▲──────────────── every engine runs the current spec, or the spec has changed ─────┘

The Deployment itself remembers: while its strategy is in place, its rollout goes on so, whatever
becomes of the pods. Stopping an engine is only right if that makes room. So nothing is stopped for
a pod that asks for more, or for another node, than the engines that run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object, label
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.pods import condition_of, is_draining
from yaie_operator.reconcile.quantity import amount
from yaie_operator.resources.engine import hash_of, strategy_of
from yaie_operator.resources.mounts import Stored

PATIENCE_S: Final = 30.0
NO_ROOM: Final = ("Insufficient ", "Too many pods", "exceeded quota")
"""What the scheduler or a quota says where an engine that stops makes room."""
_RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"


@dataclass(frozen=True)
class Choice:
    """`in_place`: engines are replaced in their places; `again_s`: seconds until another look."""

    in_place: bool = False
    again_s: float | None = None


def choose(
    model: ServedModel,
    live: Object | None,
    pods: Sequence[Object],
    now: datetime,
    *,
    stored: Stored | None = None,
) -> Choice:
    """How the rollout goes on. `live`: the engines' Deployment as it is, if it is ours. `stored`:
    the model's weights in the cache.
    """
    rollout = model.spec.rollout
    if rollout.strategy != "Auto" or rollout.max_surge == 0 or live is None:
        return Choice()
    if label(live, names.LABEL_TEMPLATE_HASH) != hash_of(model, stored):
        return Choice()
    if _is_complete(live):
        return Choice()
    if live["spec"]["strategy"] == strategy_of(rollout, in_place=True):
        return Choice(in_place=True)
    since = _without_room_since(live, pods)
    if since is None or not _fits_in_place(live["spec"]["template"]["spec"], _running(live, pods)):
        return Choice()
    left_s = PATIENCE_S - (now - since).total_seconds()
    return Choice(again_s=left_s) if left_s > 0 else Choice(in_place=True)


def _is_complete(live: Object) -> bool:
    """Whether every engine runs the current spec and is ready."""
    status = live.get("status", {})
    counts = ("replicas", "updatedReplicas", "readyReplicas")
    settled = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return settled and {status.get(count, 0) for count in counts} == {live["spec"]["replicas"]}


def _running(live: Object, pods: Iterable[Object]) -> list[Object]:
    """Pods that hold a place on a node and are to be replaced."""
    return [pod for pod in pods if not is_draining(pod) and _has_place(pod) and _is_old(live, pod)]


def _is_old(live: Object, pod: Object) -> bool:
    """Whether a pod is of an earlier template. A restart by kubectl changes an annotation only."""
    both = (live["spec"]["template"], pod)
    if len({label(one, names.LABEL_TEMPLATE_HASH) for one in both}) > 1:
        return True
    restarts = (one["metadata"].get("annotations") or {} for one in both)
    return len({restart.get(_RESTARTED) for restart in restarts}) > 1


def _has_place(pod: Object) -> bool:
    return condition_of(pod, "PodScheduled").get("status") == "True"


def _without_room_since(live: Object, pods: Iterable[Object]) -> datetime | None:
    """Since when a pod of the current template finds no room; None: none of them is in want."""
    waiting = [
        condition_of(pod, "PodScheduled")
        for pod in pods
        if not is_draining(pod) and not _has_place(pod) and not _is_old(live, pod)
    ]
    waiting.append(condition_of(live, "ReplicaFailure"))
    since = [
        datetime.fromisoformat(condition["lastTransitionTime"])
        for condition in waiting
        if any(words in condition.get("message", "") for words in NO_ROOM)
    ]
    return min(since, default=None)


def _fits_in_place(new: Mapping[str, Any], old: Iterable[Object]) -> bool:
    """Whether a pod with this spec fits where one of the old pods runs."""
    return any(_fits(new, pod["spec"]) for pod in old)


def _fits(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    same = all(new.get(key) == old.get(key) for key in _PLACING)
    placed = (old.get("nodeSelector") or {}).items() >= (new.get("nodeSelector") or {}).items()
    borne = all(one in (new.get("tolerations") or ()) for one in _own_tolerations(old))
    claims = _claims(new) <= _claims(old)
    return same and placed and borne and claims and _asks_no_more(new, old)


_PLACING: Final = ("affinity", "runtimeClassName", "topologySpreadConstraints")


def _own_tolerations(spec: Mapping[str, Any]) -> list[Any]:
    """Tolerations that a pod got from its template; the API server adds those of a node's own
    states.
    """
    own = spec.get("tolerations") or ()
    return [one for one in own if not str(one.get("key", "")).startswith("node.kubernetes.io/")]


def _claims(spec: Mapping[str, Any]) -> set[str]:
    volumes = spec.get("volumes") or ()
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    }


def _asks_no_more(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    wanted, held = (_requests(spec) for spec in (new, old))
    return all(
        (more := amount(str(value))) is not None
        and (has := amount(str(held.get(key, "0")))) is not None
        and more <= has
        for key, value in wanted.items()
    )


def _requests(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = spec["containers"][0].get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
