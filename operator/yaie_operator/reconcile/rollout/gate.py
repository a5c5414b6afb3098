"""Decides when a new engine counts as ready: once the routers reach it. Pure.

An engine pod has the readiness gate `yaie.dev/routed`. While it is closed, the pod is not ready, so
a rollout does not stop the old engine that it replaces. It is opened once and never closed again:

- at once, if no other engine of the model is ready: there is nobody to wait for;
- when every ready router says that it reaches the engine;
- after PATIENCE_S, if no router says the opposite: routers that are down, silent or of an older
  version keep no engine waiting.

While the operator is down nobody opens gates. Then a rollout stands still and old engines serve; if
there is none, the routers send requests to the engines that answer them, whatever the gates say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.reconcile.pods import condition_of, is_draining

PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Opening:
    """Why a gate is opened: reason and message of the pod's condition."""

    reason: str
    message: str


ALONE: Final = Opening("NoOtherEngine", "No other engine of the model is ready.")
REACHED: Final = Opening("Reached", "Every router reaches the engine.")
UNTOLD: Final = Opening("NoReport", f"No router has said for {PATIENCE_S:g} s whether it does.")


def has_gate(pod: Object) -> bool:
    gates = pod["spec"].get("readinessGates") or ()
    return any(gate["conditionType"] == names.CONDITION_ROUTED for gate in gates)


def waits(pod: Object) -> bool:
    """Whether nothing but the gate keeps the pod from being ready."""
    is_closed = condition_of(pod, names.CONDITION_ROUTED).get("status") != "True"
    started = condition_of(pod, "ContainersReady").get("status") == "True"
    return started and is_closed and has_gate(pod) and not is_draining(pod)


def opening(
    pod: Object,
    reports: Mapping[str, frozenset[str] | None],
    *,
    others_ready: bool,
    now: datetime,
) -> Opening | None:
    """Why the gate of a pod that waits is to be opened now; None: it stays closed.

    Args:
        pod: the engine's pod.
        reports: the pods that each ready router reaches; None: it did not say.
        others_ready: whether another engine of the model is ready.
        now: the time.

    """
    if not others_ready:
        return ALONE
    name = pod["metadata"]["name"]
    told = [report for report in reports.values() if report is not None]
    if not all(name in report for report in told):
        return None
    if told and len(told) == len(reports):
        return REACHED
    since = datetime.fromisoformat(condition_of(pod, "ContainersReady")["lastTransitionTime"])
    return UNTOLD if (now - since).total_seconds() >= PATIENCE_S else None


def condition(opened: Opening, now: datetime) -> dict[str, Any]:
    """The condition of the pod's status that opens its gate."""
    return {
        "type": names.CONDITION_ROUTED,
        "status": "True",
        "reason": opened.reason,
        "message": opened.message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
