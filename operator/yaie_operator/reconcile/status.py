"""Turns a view of one model into its status. Pure.

Each condition is one function from the view to a `ConditionState` (status, reason, message).
Transition times come from the stored status and change only when a condition's status changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from yaie_api import names
from yaie_api.resource.model import InferenceModelSpec
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.reconcile.cache.weights import Weights
from yaie_operator.reconcile.observe import ModelView, Ref
from yaie_operator.reconcile.plan import foreign_shared
from yaie_operator.reconcile.pods import condition_of, worst
from yaie_operator.reconcile.reasons import ConditionState, ConditionType, Reason, false, true
from yaie_operator.reconcile.rollout import progress
from yaie_operator.reconcile.rollout.endpoints import ready_pods
from yaie_operator.reconcile.rollout.replicas import Replicas, count, own_deployment


@dataclass(frozen=True)
class ScalingReport:
    """What the autoscaler tells: the condition ScalingActive, and `status.scaling`."""

    condition: ConditionState
    scaling: Mapping[str, Any]


@dataclass(frozen=True)
class Transition:
    """A condition whose status changed, or that is false for a new reason that is a failure."""

    type: ConditionType
    condition: ConditionState

    @property
    def is_warning(self) -> bool:
        quiet = {
            Reason.COMPLETE,
            Reason.IDLE,
            Reason.SUSPENDED,
            Reason.CREATING,
            Reason.STARTING,
            Reason.DOWNLOADING,
        }
        return not self.condition.is_true and self.condition.reason not in quiet


def summarise(
    view: ModelView,
    spec: InferenceModelSpec | None,
    accepted: ConditionState,
    config: OperatorConfig,
    now: datetime,
    *,
    scaling: ScalingReport | None = None,
    weights: Weights | None = None,
) -> dict[str, Any]:
    """The whole status. `spec` is None if the stored spec is invalid (see `accepted`).

    `scaling`: None if the autoscaler has not looked at the model yet. `weights`: what has been
    decided about them; None: nothing was, the spec is not accepted.
    """
    replicas = count(view, spec)
    deployment = own_deployment(view)
    cache = weights.condition if weights is not None else None
    states = _states(view, spec, accepted, replicas, cache=cache, config=config)
    told = _scaling(view.model, spec, scaling)
    if told is not None:
        states[ConditionType.SCALING_ACTIVE] = told.condition
    metadata = view.metadata
    return {
        "observedGeneration": metadata.get("generation", 0),
        "phase": phase(states, replicas),
        "conditions": _conditions(view.model, states, now),
        "replicas": {
            "desired": replicas.desired,
            "current": replicas.current,
            "updated": replicas.updated,
            "ready": replicas.ready,
            "draining": replicas.draining,
        },
        "ready": f"{replicas.ready}/{replicas.desired}",
        "selector": (
            f"{names.LABEL_MODEL}={metadata['name']},"
            f"{names.LABEL_COMPONENT}={names.COMPONENT_ENGINE}"
        ),
        "endpoint": config.endpoint_format.format(namespace=metadata["namespace"]),
        **_weights(view.model, weights),
        "rollout": progress.report(deployment, view.pods, is_complete=replicas.are_current),
        **({"scaling": told.scaling} if told is not None else {}),
    }


FAILURES: Final = frozenset(
    {
        Reason.CRASH_LOOP,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONFIG_ERROR,
        Reason.DOWNLOAD_FAILED,
        Reason.CLAIM_MISSING,
        Reason.NO_IMAGE_VOLUMES,
    }
)
"""Why engines, the router or a download do not start, and will not without help."""


_UNREADY: Final = {
    Reason.DOWNLOADING: "Downloading",
    **dict.fromkeys(FAILURES, "Failed"),
}
"""The phase of a model without a ready engine, if it is not `Starting`."""


def _weights(model: Object, weights: Weights | None) -> dict[str, Any]:
    """`status.model` and `status.cache`; while nothing is decided, what they said."""
    if weights is None:
        old = model.get("status") or {}
        return {key: old[key] for key in ("model", "cache") if key in old}
    told: dict[str, Any] = {}
    if weights.revision:
        told["model"] = {"resolvedRevision": weights.revision}
    if weights.status is not None:
        told["cache"] = dict(weights.status)
    return told


def flips(before: Object, after: Mapping[str, Any]) -> tuple[Transition, ...]:
    """What an Event tells: conditions whose status differs between a stored object and its new
    status, and engines or a router that were not ready and now fail.
    """
    old = {c["type"]: (c["status"], c["reason"]) for c in _stored(before)}
    # The first status has no previous one. A spec counts as accepted before it, so that only a
    # rejection is reported.
    old.setdefault(ConditionType.ACCEPTED, ("True", Reason.VALID))
    return tuple(
        Transition(
            ConditionType(c["type"]), ConditionState(c["status"], Reason(c["reason"]), c["message"])
        )
        for c in after["conditions"]
        if c["type"] in old and _is_news(c, *old[c["type"]])
    )


def _is_news(condition: Mapping[str, Any], status: str, reason: str) -> bool:
    """Whether a condition is worth an Event after the given status and reason."""
    if condition["status"] != status:
        return True
    is_copy = condition["type"] == ConditionType.READY  # of the condition that tells it already
    return not is_copy and condition["reason"] in FAILURES and condition["reason"] != reason


def phase(states: Mapping[ConditionType, ConditionState], replicas: Replicas) -> str:
    """Summary of the conditions in one word, for people."""
    ready = states[ConditionType.READY]
    if not states[ConditionType.ACCEPTED].is_true:
        return "Invalid"
    if ready.reason in {Reason.SUSPENDED, Reason.IDLE}:
        return ready.reason.value
    if ready.is_true:
        return "Ready"
    if replicas.ready == 0:
        return _UNREADY.get(ready.reason, "Starting")
    return "Updating" if states[ConditionType.PROGRESSING].is_true else "Degraded"


def _states(
    view: ModelView,
    spec: InferenceModelSpec | None,
    accepted: ConditionState,
    replicas: Replicas,
    *,
    cache: ConditionState | None,
    config: OperatorConfig,
) -> dict[ConditionType, ConditionState]:
    """All conditions, in the order in which they are shown."""
    engines = _engines(view, spec, accepted, replicas, cache)
    router = _router(view, config)
    available = _available(view, replicas, router)
    return {
        ConditionType.ACCEPTED: accepted,
        **({ConditionType.CACHE_READY: cache} if cache is not None else {}),
        ConditionType.ENGINES_READY: engines,
        ConditionType.ROUTER_READY: router,
        ConditionType.PROGRESSING: _progressing(view, replicas),
        ConditionType.AVAILABLE: available,
        ConditionType.READY: _ready(accepted, cache, engines, router),
    }


def _scaling(
    model: Object, spec: InferenceModelSpec | None, report: ScalingReport | None
) -> ScalingReport | None:
    """What is said of scaling; before the first look, what the status says already."""
    if spec is None or spec.autoscaling is None:
        return None
    if report is not None:
        return report
    scaling = (model.get("status") or {}).get("scaling")
    stored = {c["type"]: c for c in _stored(model)}.get(ConditionType.SCALING_ACTIVE)
    if scaling is None or stored is None:
        awaited = ConditionState(
            "Unknown", Reason.METRICS_MISSING, "The first look at the load is awaited; wait."
        )
        return ScalingReport(awaited, {"desired": spec.replicas, "lastDecisions": []})
    condition = ConditionState(stored["status"], Reason(stored["reason"]), stored["message"])
    return ScalingReport(condition, scaling)


def _engines(
    view: ModelView,
    spec: InferenceModelSpec | None,
    accepted: ConditionState,
    replicas: Replicas,
    cache: ConditionState | None,
) -> ConditionState:
    if spec is not None and spec.suspend:
        return false(
            Reason.SUSPENDED, "spec.suspend is true; set it to false to start the engines."
        )
    if own_deployment(view) is None or not replicas.settled:
        return _no_engines(view, accepted, cache)
    if replicas.desired == 0:
        by_load = spec is not None and spec.autoscaling is not None
        wakes = "the next request starts" if by_load else "set replicas to 1 or more to start"
        return true(Reason.IDLE, f"Scaled to zero; {wakes} an engine.")
    return _running(view, replicas)


def _running(view: ModelView, replicas: Replicas) -> ConditionState:
    """The engines' condition if at least one should run."""
    if not replicas.are_current:
        return worst(view.pods) or _engines_missing(view, replicas)
    if replicas.reached < replicas.ready:
        return _unreached(view.metadata["name"], _ready_count(replicas), replicas.reached)
    return true(Reason.ALL_READY, f"{_engine_count(replicas.ready)} ready.")


def _no_engines(
    view: ModelView, accepted: ConditionState, cache: ConditionState | None
) -> ConditionState:
    """Why there is no Deployment, or none that is up to date."""
    if own_deployment(view) is None and not accepted.is_true:
        return false(accepted.reason, f"There are no engines: {accepted.message}")
    if own_deployment(view) is None and cache is not None and not cache.is_true:
        return false(cache.reason, "The engines wait for the weights; see CacheReady.")
    return false(Reason.CREATING, "The Deployment of the engines is being written; wait.")


def _engines_missing(view: ModelView, replicas: Replicas) -> ConditionState:
    """The engines' condition if no pod has a diagnosis but engines are missing or too many."""
    if refusal := _deployment_condition(view, "ReplicaFailure"):
        why = str(refusal["message"]).rstrip(". ")
        return false(
            Reason.CONFIG_ERROR,
            f"Pods cannot be created: {why}; change the spec, the quota or the policy.",
        )
    if replicas.ready >= replicas.desired:
        return false(Reason.DRAINING, "Engines of the previous spec finish their requests; wait.")
    return false(
        Reason.STARTING, f"{replicas.ready} of {_engine_count(replicas.desired)} ready; wait."
    )


def _router(view: ModelView, config: OperatorConfig) -> ConditionState:
    if foreign := foreign_shared(view.shared, config):
        return name_conflict(foreign)
    if view.shared.refusal:
        why = view.shared.refusal.rstrip(". ")
        return false(
            Reason.REFUSED,
            f"The API server refused the router: {why}; change the quota or the policy. It is "
            "tried again.",
        )
    router = view.shared.router
    if router is None:
        return false(Reason.CREATING, "The router of this namespace is being created; wait.")
    if router.get("status", {}).get("availableReplicas", 0) >= 1:
        is_reached = bool(ready_pods(view.shared.slices))
        unreached = _unreached(names.ROUTER, "The router is ready", 0)
        return true(Reason.ALL_READY, "The router answers.") if is_reached else unreached
    if (trouble := worst(view.shared.pods)) is not None:
        return false(trouble.reason, f"Router: {trouble.message}")
    return false(Reason.STARTING, "The router of this namespace starts; wait.")


def _unreached(service: str, who: str, reached: int) -> ConditionState:
    """The condition for ready pods that the Service does not lead to."""
    return false(
        Reason.NO_ENDPOINT,
        f"{who}, but Service {service} leads to {reached}; wait until the operator has restored "
        "its selector and ports. If this lasts, see `kubectl get endpointslices -l "
        f"{names.LABEL_SERVICE_NAME}={service}`.",
    )


def name_conflict(refs: Sequence[Ref]) -> ConditionState:
    """The condition for objects of other owners that have needed names."""
    listed = " and ".join(f"{ref.kind} {ref.name}" for ref in refs)
    return false(
        Reason.NAME_CONFLICT,
        f"{listed} in this namespace belongs to somebody else and was not changed; delete it, or "
        "choose another name for the model.",
    )


def _progressing(view: ModelView, replicas: Replicas) -> ConditionState:
    progressing = _deployment_condition(view, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return false(
            Reason.DEADLINE_EXCEEDED,
            "No new engine became ready within rollout.progressDeadlineSeconds; see EnginesReady."
            + _way_back(view, replicas),
        )
    if replicas.are_current:
        return false(Reason.COMPLETE, "All engines run the current spec.")
    trouble = worst(view.pods)
    fails = trouble is not None and trouble.reason in FAILURES
    return true(
        Reason.ROLLING_OUT,
        f"{replicas.updated} of {_engine_count(replicas.desired)} updated, "
        f"{replicas.ready} ready, {replicas.older} of an older spec"
        + (_way_back(view, replicas) if fails else "; wait."),
    )


def _way_back(view: ModelView, replicas: Replicas) -> str:
    """What to do about a new version that fails while an older one serves."""
    if not replicas.older:
        return "; see EnginesReady."
    return (
        f". {_engine_count(replicas.older)} of the earlier spec "
        f"{'keeps' if replicas.older == 1 else 'keep'} serving. To go back, apply the "
        f"earlier spec of {view.metadata['name']} again."
    )


def _available(view: ModelView, replicas: Replicas, router: ConditionState) -> ConditionState:
    if replicas.ready == 0:
        return false(Reason.NO_ENGINE, "No engine is ready; see EnginesReady.")
    if replicas.reached == 0:
        return _unreached(view.metadata["name"], _ready_count(replicas), 0)
    if not router.is_true:
        return false(Reason.NO_ROUTER, "Engines are ready, the router is not; see RouterReady.")
    return true(Reason.REACHABLE, f"{_engine_count(replicas.reached)} can be reached.")


def _ready(
    accepted: ConditionState,
    cache: ConditionState | None,
    engines: ConditionState,
    router: ConditionState,
) -> ConditionState:
    """Copy of the first condition that is not true; else that of idle engines, else AllReady."""
    for condition in (accepted, cache, engines, router):
        if condition is not None and not condition.is_true:
            return condition
    if engines.reason == Reason.IDLE:
        return engines
    return true(Reason.ALL_READY, "Every engine and the router are ready.")


def _conditions(
    model: Object, states: Mapping[ConditionType, ConditionState], now: datetime
) -> list[dict[str, Any]]:
    stored = {condition["type"]: condition for condition in _stored(model)}
    generation = model["metadata"].get("generation", 0)
    return [
        {
            "type": kind.value,
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": _since(stored.get(kind.value), condition, now),
            "reason": condition.reason.value,
            "message": condition.message[:MESSAGE_LENGTH],
        }
        for kind, condition in states.items()
    ]


MESSAGE_LENGTH: Final = 2048


def _since(stored: Mapping[str, Any] | None, condition: ConditionState, now: datetime) -> str:
    if stored is not None and stored["status"] == condition.status:
        return str(stored["lastTransitionTime"])
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _stored(model: Object) -> Sequence[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] = model.get("status", {}).get("conditions", ())
    return conditions


def _deployment_condition(view: ModelView, kind: str) -> Mapping[str, Any]:
    deployment = own_deployment(view)
    return condition_of(deployment, kind) if deployment else {}


def _ready_count(replicas: Replicas) -> str:
    return f"{_engine_count(replicas.ready)} {'is' if replicas.ready == 1 else 'are'} ready"


def _engine_count(number: int) -> str:
    return "1 engine" if number == 1 else f"{number} engines"
