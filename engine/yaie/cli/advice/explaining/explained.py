"""Why a model is as it is: from its status, its pods and Events to an explanation. Pure.

The status says what is awaited; pods say which engine hangs where and what it said itself; the
rest is what a user would otherwise collect with five commands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from yaie.cli.advice.explaining.next_step import Commands, next_steps
from yaie.cli.commands.local.ps import age, table
from yaie_api.download.amounts import in_bytes
from yaie_operator.reconcile import pods as diagnoses
from yaie_operator.reconcile.reasons import GUIDE

Object = Mapping[str, Any]
MOST_EVENTS: Final = 6
_SETTLED: Final = frozenset({"Idle", "Suspended"})


@dataclass(frozen=True)
class Seen:
    """What was read. `said`: by the name of a pod, what its engine said last."""

    model: Object
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    unseen: Sequence[str] = ()


@dataclass(frozen=True)
class Engine:
    """One engine's pod, in words."""

    pod: str
    state: str
    age: str
    node: str
    restarts: int
    message: str
    said: str


@dataclass(frozen=True)
class Happened:
    """One Event, or several of the same."""

    ago: str
    type: str
    reason: str
    about: str
    message: str
    count: int


@dataclass(frozen=True)
class Condition:
    """One condition. `age`: since it has this status; "-": it is not known."""

    type: str
    status: str
    reason: str
    age: str
    message: str


@dataclass(frozen=True)
class Note:
    """Why there are so many engines, how a rollout goes, where the weights are."""

    about: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """The answer. `is_ready`: nothing is awaited. `since`: for how long, "" if it is not known."""

    name: str
    namespace: str
    is_ready: bool
    summary: str
    since: str
    reason: str
    message: str
    remedy: str
    conditions: tuple[Condition, ...]
    engines: tuple[Engine, ...]
    notes: tuple[Note, ...]
    events: tuple[Happened, ...]
    unseen: tuple[str, ...]
    next: tuple[str, ...]


def explain(seen: Seen, commands: Commands, now_s: float) -> Explanation:
    """Explain a model. `now_s`: Unix time."""
    model = seen.model
    status = model.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    engines = tuple(_engine(pod, seen.said, now_s) for pod in seen.pods)
    ready = conditions.get("Ready", {})
    reason, message = _awaited(model, conditions)
    since = "" if reason == "NotSeen" else _since(ready.get("lastTransitionTime"), now_s)
    is_ready = ready.get("status") == "True" or reason in _SETTLED
    return Explanation(
        name=model["metadata"]["name"],
        namespace=model["metadata"]["namespace"],
        is_ready=is_ready and not _is_stale(model),
        summary=_summary(status),
        since=since,
        reason=reason,
        message=message,
        remedy="" if is_ready else _remedy(reason, is_local=commands.is_local),
        conditions=tuple(_condition(c, now_s) for c in conditions.values()),
        engines=engines,
        notes=tuple(_notes(model, conditions, now_s)),
        events=tuple(_events(seen, now_s)),
        unseen=tuple(seen.unseen),
        next=next_steps(reason, commands, _worst_pod(seen.pods)),
    )


def lines(told: Explanation, where: str) -> list[str]:
    """The explanation for people; what matters most comes first, what to type comes last."""
    found = [f"{told.namespace}/{told.name} on {where}: {told.summary}", ""]
    if told.is_ready:
        found.append(f"Nothing is awaited ({told.reason}{_for(told.since)}): {told.message}")
    else:
        found.append(f"Not ready{_for(told.since)}, {told.reason}: {told.message}")
        found += [f"What to do: {told.remedy}"] if told.remedy else []
    found += [f"{note.about}: {note.text}" for note in told.notes]
    if told.engines:
        found += [
            "",
            "Engines:",
            *(line for one in told.engines for line in _engine_lines(one, told.message)),
        ]
    if not told.is_ready and told.conditions:
        found += ["", "Conditions:", *_condition_lines(told)]
    if told.events:
        found += ["", "Events, the newest first:", *map(_event_line, told.events)]
    found += [f"({text})" for text in told.unseen]
    return [*found, "", "Next:", *(f"  {step}" for step in told.next)]


def _awaited(model: Object, conditions: Mapping[str, Object]) -> tuple[str, str]:
    """Reason and message of what is awaited, or of why nothing is."""
    if not conditions:
        return "NoStatus", "The operator has said nothing about this model yet. Is it running?"
    if _is_stale(model):
        seen, now = model["status"].get("observedGeneration", 0), model["metadata"]["generation"]
        return "NotSeen", (
            f"The operator has not seen the last change yet: its status is of generation {seen}, "
            f"the spec is of generation {now}."
        )
    ready = conditions.get("Ready", {})
    progress = conditions.get("Progressing", {})
    message = ready.get("message", "")
    if ready.get("status") != "True" and progress.get("reason") == "DeadlineExceeded":
        message = f"{message} {progress['message']}"
    return ready.get("reason", "Unknown"), message


def _remedy(reason: str, *, is_local: bool) -> str:
    """What the user does about a reason, as the table of reasons says; "": nothing. Under `yaie up`
    there is no kubectl: there the message says it.
    """
    known = {str(one): guide.remedy for one, guide in GUIDE.items()}
    told = known.get(reason, "")
    return "" if told == "Nothing." or (is_local and "kubectl" in told) else told


def _is_stale(model: Object) -> bool:
    told = (model.get("status") or {}).get("observedGeneration", 0)
    return bool(told < model["metadata"].get("generation", 0))


def _summary(status: Object) -> str:
    phase = status.get("phase") or "Pending"
    counts = status.get("replicas") or {}
    if not counts:
        return phase
    text = f"{phase}, {counts.get('ready', 0)} of {counts.get('desired', 0)} engines ready"
    older = counts.get("current", 0) - counts.get("updated", 0)
    more = [f"{older} of an older spec"] if older > 0 else []
    more += [f"{counts['draining']} draining"] if counts.get("draining") else []
    return ", ".join([text, *more])


def _notes(model: Object, conditions: Mapping[str, Object], now_s: float) -> Iterable[Note]:
    """Why there are so many engines, how the rollout goes, where the weights are."""
    spec, status = model["spec"], model.get("status") or {}
    yield from _replicas(spec, status, conditions, now_s)
    rollout = status.get("rollout") or {}
    step = rollout.get("step") or "RollingOut"
    if blocked := rollout.get("blockedBy"):
        yield Note("Rollout", f"{step}, and waits: {blocked}")
    elif _is_true(conditions, "Progressing"):
        yield Note("Rollout", f"{step}: {conditions['Progressing']['message']}")
    if (cache := conditions.get("CacheReady")) is not None:
        yield Note("Cache", f"{cache['reason']}: {cache['message']}{_downloaded(status)}")


def _replicas(
    spec: Object, status: Object, conditions: Mapping[str, Object], now_s: float
) -> Iterable[Note]:
    wanted = (status.get("replicas") or {}).get("desired", spec.get("replicas", 1))
    if spec.get("suspend"):
        yield Note("Replicas", "none, for spec.suspend is true")
        return
    limits = spec.get("autoscaling")
    if not limits:
        yield Note("Replicas", f"{wanted}, as spec.replicas says")
        return
    active = conditions.get("ScalingActive", {})
    yield Note(
        "Replicas", f"{wanted} by load: {active.get('message', 'the first look is awaited.')}"
    )
    for decision in (status.get("scaling") or {}).get("lastDecisions") or ():
        ago = age(now_s - _seconds(decision["time"]))
        step = f"{decision['from']} -> {decision['to']} ({decision['reason']})"
        told = f": {decision['message']}" if decision.get("message") else ""
        yield Note("  scaled", f"{ago} ago {step}{told}")


def _downloaded(status: Object) -> str:
    cache = status.get("cache") or {}
    total, there = cache.get("totalBytes"), cache.get("bytes")
    if not there or not total or there >= total:
        return ""
    return f" ({in_bytes(there)} of {in_bytes(total)})"


def _engine(pod: Object, said: Mapping[str, str], now_s: float) -> Engine:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    restarts = sum(one.get("restartCount", 0) for one in status.get("containerStatuses") or ())
    draining, ready = diagnoses.is_draining(pod), diagnoses.is_ready(pod)
    state = "Draining" if draining else "Ready" if ready else status.get("phase") or "Pending"
    message = "" if draining or ready else diagnoses.diagnose(pod).message
    return Engine(
        pod=name,
        state=state,
        age=_since(pod["metadata"].get("creationTimestamp"), now_s) or "?",
        node=pod["spec"].get("nodeName") or "",
        restarts=restarts,
        message=message,
        said=said.get(name, ""),
    )


def _engine_lines(one: Engine, said: str) -> Iterable[str]:
    more = f", on {one.node}" if one.node else ""
    more += f", restarted {one.restarts} times" if one.restarts > 1 else ""
    more += ", restarted once" if one.restarts == 1 else ""
    yield f"  {one.pod}: {one.state} for {one.age}{more}"
    if one.message and one.message != said:
        yield f"    {one.message}"
    if one.said and one.said not in one.message:
        yield f"    it said last: {one.said}"


def _worst_pod(pods: Sequence[Object]) -> str:
    """The pod to look at first; "" if there is none."""
    waiting = [p for p in pods if not diagnoses.is_ready(p) and not diagnoses.is_draining(p)]
    worst = diagnoses.worst(waiting)
    if worst is None:
        return ""
    named = [p["metadata"]["name"] for p in waiting if diagnoses.diagnose(p) == worst]
    return str(named[0]) if named else ""


def _condition(condition: Object, now_s: float) -> Condition:
    return Condition(
        type=condition["type"],
        status=condition["status"],
        reason=condition["reason"],
        age=_since(condition.get("lastTransitionTime"), now_s) or "-",
        message=condition["message"],
    )


def _condition_lines(told: Explanation) -> Iterable[str]:
    """The conditions as a table. A message that was said above is not said again."""
    rows = [(one.type, one.status, one.reason, one.age) for one in told.conditions]
    for one, cells in zip(told.conditions, table(rows, trimmed=False).splitlines(), strict=True):
        yield f"  {cells}   {'as above' if one.message == told.message else one.message}"


def _events(seen: Seen, now_s: float) -> Iterable[Happened]:
    """The last Events of the model and its children, the newest first."""
    dated = sorted(((_event_s(e), e) for e in seen.events), key=lambda pair: -pair[0])
    told = set()
    for at_s, event in dated:
        about = event.get("involvedObject") or {}
        same = (about.get("kind"), about.get("name"), event.get("reason"), event.get("message"))
        if same in told:
            continue
        told.add(same)
        if len(told) > MOST_EVENTS:
            return
        yield Happened(
            ago=age(now_s - at_s),
            type=event.get("type") or "Normal",
            reason=event.get("reason") or "",
            about=f"{about.get('kind', '?')}/{about.get('name', '?')}",
            message=(event.get("message") or "").strip(),
            count=(event.get("series") or {}).get("count") or event.get("count") or 1,
        )


def _event_line(event: Happened) -> str:
    times = f" ({event.count} times)" if event.count > 1 else ""
    kind = "" if event.type == "Normal" else f"{event.type} "
    return f"  {event.ago} ago  {kind}{event.reason} {event.about}{times}: {event.message}"


def _event_s(event: Object) -> float:
    """When an Event was last seen: by the old fields, or by those of events.k8s.io."""
    series = (event.get("series") or {}).get("lastObservedTime")
    created = event["metadata"].get("creationTimestamp")
    first = event.get("lastTimestamp") or series or event.get("eventTime") or created
    return _seconds(first) if first else 0.0


def _is_true(conditions: Mapping[str, Object], kind: str) -> bool:
    return bool(conditions.get(kind, {}).get("status") == "True")


def _since(time: str | None, now_s: float) -> str:
    return age(now_s - _seconds(time)) if time else ""


def _for(since: str) -> str:
    return f" for {since}" if since else ""


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
