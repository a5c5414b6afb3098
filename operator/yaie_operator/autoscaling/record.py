"""What the status says of the autoscaler: the last changes, and the condition ScalingActive. Pure.

The status is also the memory that outlives a leader: `past` reads it back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from yaie_api.resource.autoscaling import MOST_DECISIONS, Autoscaling
from yaie_operator.autoscaling.decision import Decision, Past, Why
from yaie_operator.autoscaling.history import Engines, Policy, Sample
from yaie_operator.cluster import Object
from yaie_operator.reconcile.reasons import ConditionState, ConditionType, Reason, false, true

_SCALERS: Final = {"kube-controller-manager": "Another autoscaler"}
"""Field managers that are autoscalers: HorizontalPodAutoscalers, and what scales through them."""

OVERRIDE_S: Final = 300.0
"""How long the condition names a foreign write."""
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """What the status told: the last changes, newest first, and the replicas wanted then."""

    entries: tuple[Entry, ...] = ()
    desired: int | None = None


def known(model: Object) -> Known:
    """What the stored status says; nothing for a model that was never scaled. What was refused was
    wanted, but never written: to find other replicas then names no other writer.
    """
    status = model.get("status") or {}
    scaling = status.get("scaling") or {}
    is_refused = any(
        one["type"] == ConditionType.SCALING_ACTIVE and one["reason"] == Reason.REFUSED
        for one in status.get("conditions", ())
    )
    desired = None if is_refused else scaling.get("desired")
    return Known(tuple(scaling.get("lastDecisions") or ()), desired)


def past(entries: Sequence[Entry]) -> tuple[Past, ...]:
    """The last changes as the decision reads them."""
    return tuple(
        Past(
            at_s=datetime.fromisoformat(entry["time"]).timestamp(),
            before=entry["from"],
            after=entry["to"],
            target=entry.get("target", ""),
            active=float((entry.get("inputs") or {}).get("activeRequests", 0)),
        )
        for entry in entries
    )


def policy_of(autoscaling: Autoscaling, *, suspended: bool) -> Policy:
    target, up = autoscaling.target, autoscaling.scale_up
    return Policy(
        least=autoscaling.min,
        most=autoscaling.max,
        active_requests=target.active_requests,
        kv_utilization=target.kv_utilization,
        queue_s=target.queue_seconds,
        ttft_p95_s=target.ttft_p95_seconds,
        window_s=up.window_seconds,
        panic_window_s=up.panic_window_seconds,
        panic_factor=up.panic_factor,
        stabilization_s=autoscaling.scale_down.stabilization_seconds,
        idle_s=autoscaling.idle_seconds,
        suspended=suspended,
    )


def entry(decision: Decision, engines: Engines, sample: Sample | None, now: datetime) -> Entry:
    """One change, as `status.scaling.lastDecisions` tells it."""
    return {
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "from": engines.current,
        "to": decision.replicas,
        "reason": decision.why.value,
        "target": decision.target,
        "message": decision.message,
        "inputs": _inputs(sample, engines),
    }


def writer(model: Object) -> str:
    """The field manager that set spec.replicas, as managedFields tell it; "" if they do not."""
    entries = model["metadata"].get("managedFields") or ()
    found = [one for one in entries if "f:replicas" in one.get("fieldsV1", {}).get("f:spec", {})]
    return str(max(found, key=lambda one: one.get("time", ""))["manager"]) if found else ""


def overridden(
    expected: int, engines: Engines, sample: Sample | None, now: datetime, by: str = ""
) -> Entry:
    """A change by somebody else. `by`: their field manager; "" if nobody knows."""
    told = f"{_SCALERS.get(by, 'Another writer')}{by and f' ({by})'} set spec.replicas from "
    told += f"{expected} to {engines.current}."
    foreign = Decision(engines.current, Why.OVERRIDDEN, told, engines.current)
    was = Engines(expected, engines.ready)
    return entry(foreign, was, sample, now)


def add(entries: Sequence[Entry], new: Entry) -> tuple[Entry, ...]:
    return (new, *entries)[:MOST_DECISIONS]


def _inputs(sample: Sample | None, engines: Engines) -> dict[str, float]:
    if sample is None:
        return {"ready": engines.ready}
    return {
        "activeRequests": round(sample.active, 2),
        "pending": round(sample.pending, 2),
        "queueSeconds": round(sample.queue_s, 3),
        "kvUtilization": round(sample.kv_used / max(1, engines.ready), 3),
        "ttftP95Seconds": round(sample.ttft_p95_s, 3),
        "ready": engines.ready,
    }


def condition(
    decision: Decision,
    policy: Policy,
    entries: Sequence[Entry],
    *,
    has_metrics: bool,
    now: datetime,
    refusal: str = "",
) -> ConditionState:
    """ScalingActive. Messages hold no figure that changes with each look: each is a write.
    `refusal`: why replicas could not be written, `explain`ed; "" if they could.
    """
    if decision.why is Why.SUSPENDED:
        return false(
            Reason.SUSPENDED,
            "spec.suspend is true, replicas stay as they are; set it to false to scale.",
        )
    if refusal:
        return false(
            Reason.REFUSED,
            f"spec.replicas should change, but the API server refused to change it: {refusal}",
        )
    if not has_metrics:
        return false(
            Reason.METRICS_MISSING,
            "Not every router and ready engine answers on /metrics, so replicas do not fall; see "
            "the operator's log for the pods.",
        )
    foreign = next((e for e in entries if e["reason"] == Why.OVERRIDDEN.value), None)
    if foreign is not None and _age_s(foreign, now) < OVERRIDE_S:
        return true(
            Reason.REPLICAS_OVERRIDDEN,
            f"{foreign['message']} The load decides again: leave replicas out of manifests and let "
            "one autoscaler scale the model, or remove spec.autoscaling.",
        )
    return _by_load(decision, policy)


def _by_load(decision: Decision, policy: Policy) -> ConditionState:
    """ScalingActive while nothing but the load decides."""
    if decision.why is Why.AT_MAXIMUM:
        return true(
            Reason.AT_MAXIMUM,
            f"The load asks for more than spec.autoscaling.max, {policy.most}; raise it.",
        )
    if decision.why is Why.NO_CAPACITY:
        return true(
            Reason.NO_CAPACITY,
            "The load asks for more engines, but some of those there are do not start; see "
            "EnginesReady.",
        )
    return true(Reason.BY_LOAD, f"Scales from {policy.least} to {policy.most} engines by load.")


def _age_s(change: Entry, now: datetime) -> float:
    return (now - datetime.fromisoformat(change["time"])).total_seconds()
