"""The autoscaler: looks at every model with `spec.autoscaling`, decides, and writes `/scale`.

    pods' /metrics ─▶ exposition ─▶ signals ─▶ history ─▶ decision ─▶ /scale
                                                              └─▶ record ─▶ status, by `reconcile`

It writes nothing else, and nothing of models without `spec.autoscaling`. The leader runs it; a new
leader goes on from the replicas that it finds and from what the status tells.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import ValidationError

from yaie_api import names
from yaie_api.logs import fields
from yaie_operator.autoscaling import record
from yaie_operator.autoscaling.decision import Decision, decide, knee
from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures
from yaie_operator.autoscaling.history import STALE_S, Engines, History, Policy, extend
from yaie_operator.autoscaling.record import Entry, Known
from yaie_operator.autoscaling.scrape import Place, places
from yaie_operator.autoscaling.signals import Tracks, look
from yaie_operator.cluster import (
    Cluster,
    ConflictError,
    NotFoundError,
    Object,
    RefusedError,
    UnreachableError,
)
from yaie_operator.model import ServedModel
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Ref, Store, model_key, version
from yaie_operator.reconcile.pods import diagnose, is_draining, is_ready
from yaie_operator.reconcile.reasons import Reason
from yaie_operator.reconcile.refusals import Streak, explain
from yaie_operator.reconcile.status import ScalingReport
from yaie_operator.watch import kinds

log = logging.getLogger(__name__)
SCALE_TRIES = 4
_FAILURES = (ConflictError, NotFoundError, UnreachableError)


class Pages(Protocol):
    """Figures by pod, None for a pod of which there are none (`scrape`, `prometheus`)."""

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]: ...

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]: ...


@dataclass
class Tracked:
    """What is remembered of one model. `written`: resourceVersion of our last write to /scale;
    `refused`: its writes that were refused, `refusal`: what the condition says of them.
    """

    uid: str
    known: Known
    complete_s: float
    history: History = field(default_factory=History)
    tracks: Tracks = field(default_factory=Tracks)
    written: int = 0
    refused: Streak = field(default_factory=Streak)
    refusal: str = ""
    report: ScalingReport | None = None


class Autoscaler:
    """Scales the models of a store. `wake(key)` has a model's status written."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        clock: Callable[[], datetime],
        *,
        metrics: Metrics,
        wake: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._monotonic = monotonic
        self._tracked: dict[tuple[str, str], Tracked] = {}

    def report(self, namespace: str, name: str) -> ScalingReport | None:
        """What the status should say of this model; None: nothing has been seen of it yet."""
        tracked = self._tracked.get((namespace, name))
        return tracked.report if tracked else None

    async def look(self, pages: Pages) -> None:
        """Look at every autoscaled model once, and scale it."""
        models = [m for m in map(_parsed, self._store.models()) if m is not None]
        self._forget(models)
        namespaces = sorted({model.namespace for model in models})
        found = await asyncio.gather(*(self._routers(pages, place) for place in namespaces))
        routers = dict(zip(namespaces, found, strict=True))
        await asyncio.gather(*(self._safely(pages, m, routers[m.namespace]) for m in models))

    async def _safely(
        self, pages: Pages, model: ServedModel, routers: Mapping[str, RouterFigures | None]
    ) -> None:
        try:
            await self._one(pages, model, routers)
        except Exception:
            # An unexpected error for one model must not stop the others.
            about = fields(namespace=model.namespace, model=model.name)
            log.exception("autoscaling failed", extra=about)

    async def _routers(self, pages: Pages, namespace: str) -> Mapping[str, RouterFigures | None]:
        """Figures of a namespace's routers. One that drains still has requests, and may be gone."""
        pods = self._store.pods(namespace, "")
        ready = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
        asked = [pod for pod in pods if is_ready(pod) or is_draining(pod)]
        found = await pages.routers(places(asked))
        absent = dict.fromkeys(ready - found.keys())  # ready, but without an address
        return absent | {p: f for p, f in found.items() if f is not None or p in ready}

    async def _one(
        self, pages: Pages, model: ServedModel, routers: Mapping[str, RouterFigures | None]
    ) -> None:
        autoscaling = model.spec.autoscaling
        if autoscaling is None:
            return
        policy = record.policy_of(autoscaling, suspended=model.spec.suspend)
        pods = self._store.pods(model.namespace, model.name)
        ready = [pod for pod in pods if is_ready(pod)]
        figures = await pages.engines(places(ready))
        live = self._store.get(Ref(names.KIND, model.namespace, model.name))
        if live is None or live["metadata"]["uid"] != model.uid:
            return  # it was deleted meanwhile
        tracked = self._track(model, live)
        deployment = self._store.get(Ref("Deployment", model.namespace, model.name))
        replicas = self._replicas(tracked, live, model)
        engines = count(pods, replicas, are_refused=_pods_are_refused(deployment))
        now_s = self._monotonic()
        sample, tracked.tracks = look(model.name, tracked.tracks, now_s, routers, figures)
        missed = knee(record.past(tracked.known.entries))
        tracked.history = extend(tracked.history, sample, policy, engines, knee=missed)
        if sample.complete:
            tracked.complete_s = now_s
        await self._name_override(tracked, live, engines)
        decision = decide(tracked.history, policy, engines, now_s)
        if decision.replicas != engines.current:
            await self._write(tracked, live, engines, decision)
        else:
            tracked.known = Known(tracked.known.entries, engines.current)
            if not tracked.refused.waits(self._clock()):
                tracked.refusal = ""
        self._tell(model, tracked, policy, decision, now_s)

    def _track(self, model: ServedModel, live: Object) -> Tracked:
        tracked = self._tracked.get((model.namespace, model.name))
        if tracked is None or tracked.uid != model.uid:
            tracked = Tracked(model.uid, record.known(live), self._monotonic())
            self._tracked[model.namespace, model.name] = tracked
        return tracked

    def _replicas(self, tracked: Tracked, live: Object, model: ServedModel) -> int:
        """spec.replicas; our own last write until the store has it."""
        if version(live) < tracked.written and tracked.known.desired is not None:
            return tracked.known.desired
        return int(live["spec"].get("replicas", model.spec.replicas))

    async def _name_override(self, tracked: Tracked, live: Object, engines: Engines) -> None:
        expected = tracked.known.desired
        if expected is None or expected == engines.current or version(live) < tracked.written:
            return
        by = await self._writer(Ref.of(live))
        change = record.overridden(expected, engines, tracked.history.latest, self._clock(), by)
        log.warning("replicas overridden", extra=fields(told=change["message"]))
        tracked.known = Known(record.add(tracked.known.entries, change), engines.current)

    async def _writer(self, model: Ref) -> str:
        """Who set a model's replicas last; "": nobody knows. The store has no managedFields."""
        kind = kinds.INFERENCE_MODEL
        try:
            found = await self._cluster.get(kind, namespace=model.namespace, name=model.name)
        except (RefusedError, *_FAILURES):
            return ""
        return record.writer(found) if found is not None else ""

    async def _write(
        self, tracked: Tracked, live: Object, engines: Engines, decision: Decision
    ) -> None:
        """Write the replicas; the same ones wait after a refusal (`Streak`)."""
        wanted, now = str(decision.replicas), self._clock()
        if (refusal := tracked.refused.pending(wanted, now)) is not None:
            tracked.refusal = refusal.message
            tracked.known = Known(tracked.known.entries, engines.current)
            return
        about = {
            "namespace": live["metadata"]["namespace"],
            "model": live["metadata"]["name"],
            "before": engines.current,
            "after": decision.replicas,
            "reason": decision.why.value,
        }
        try:
            tracked.written = await self._scale(live, decision.replicas)
        except RefusedError as error:
            tracked.refusal = explain(Ref.of(live), str(error))
            tracked.refused.add(wanted, tracked.refusal, now)
            tracked.known = Known(tracked.known.entries, engines.current)
            log.warning("not scaled", extra=fields(**about, error=tracked.refusal))
            return
        except _FAILURES as error:
            log.warning("not scaled; tried again", extra=fields(**about, error=str(error)))
            # An answer that was lost may have been a success: do not take it for a foreign write.
            tracked.known = Known(tracked.known.entries, None)
            return
        tracked.refused.accept(wanted)
        tracked.refusal = ""
        change = record.entry(decision, engines, tracked.history.latest, now)
        tracked.known = Known(record.add(tracked.known.entries, change), decision.replicas)
        self._metrics.writes.labels(kind="InferenceModel/scale").inc()
        log.info("scaled", extra=fields(**about))
        await self._emit(live, change)

    async def _scale(self, live: Object, replicas: int) -> int:
        """Write spec.replicas. A status that changes all the time must not prevent it: the write is
        tried again on the live state, unless somebody else has set replicas meanwhile.

        Raises:
            ConflictError: somebody has, or the model changes faster than it can be read.

        """
        ref, seen = Ref.of(live), live["spec"].get("replicas")
        for _ in range(SCALE_TRIES - 1):
            try:
                return await self._cluster.set_scale(live, replicas)
            except ConflictError:
                kind = kinds.INFERENCE_MODEL
                now = await self._cluster.get(kind, namespace=ref.namespace, name=ref.name)
                if now is None or now["metadata"]["uid"] != live["metadata"]["uid"]:
                    raise
                if now["spec"].get("replicas") != seen:
                    raise
                live = now
        return await self._cluster.set_scale(live, replicas)

    async def _emit(self, live: Object, change: Entry) -> None:
        """Record an Event. A failure is only logged: the status tells the change too."""
        told = f"replicas {change['from']} → {change['to']}: {change['message']}"
        try:
            await self._cluster.emit(live, severity="Normal", reason=change["reason"], message=told)
        except (RefusedError, *_FAILURES) as error:
            log.warning("event lost", extra=fields(error=str(error)))

    def _tell(
        self,
        model: ServedModel,
        tracked: Tracked,
        policy: Policy,
        decision: Decision,
        now_s: float,
    ) -> None:
        entries = tracked.known.entries
        desired = decision.replicas
        state = record.condition(
            decision,
            policy,
            entries,
            has_metrics=now_s - tracked.complete_s <= STALE_S,
            now=self._clock(),
            refusal=tracked.refusal,
        )
        self._metrics.desired_replicas.labels(model.namespace, model.name).set(desired)
        report = ScalingReport(state, {"desired": desired, "lastDecisions": list(entries)})
        if report != tracked.report:
            tracked.report = report
            self._wake(model_key(model.namespace, model.name))

    def _forget(self, models: Iterable[ServedModel]) -> None:
        """Drop what is known of models that are gone or are not autoscaled any more."""
        kept = {(model.namespace, model.name) for model in models}
        for namespace, name in self._tracked.keys() - kept:
            if self._tracked.pop((namespace, name)).report is not None:
                self._metrics.desired_replicas.remove(namespace, name)
            self._wake(model_key(namespace, name))


def count(pods: Iterable[Object], current: int, *, are_refused: bool = False) -> Engines:
    """Engines by state. What spec.replicas asks for and is no pod yet is starting too, unless the
    API server refuses pods (a quota). A pod that fails while others are ready blocks no further
    ones: its node may be the cause.
    """
    ready = starting = blocked = failing = 0
    for pod in pods:
        if is_draining(pod):
            continue
        if is_ready(pod):
            ready += 1
            continue
        match diagnose(pod).reason:
            case Reason.STARTING:
                starting += 1
            case Reason.UNSCHEDULABLE:
                blocked += 1
            case _:
                failing += 1
    missing = max(0, current - ready - starting - blocked - failing)
    blocked += 0 if ready else failing
    if are_refused:
        return Engines(current, ready, starting, blocked + missing)
    return Engines(current, ready, starting + missing, blocked)


def _pods_are_refused(deployment: Object | None) -> bool:
    conditions = (deployment or {}).get("status", {}).get("conditions", ())
    return any(c["type"] == "ReplicaFailure" and c["status"] == "True" for c in conditions)


def _parsed(obj: Object) -> ServedModel | None:
    """The model, if it is autoscaled and valid; an invalid one is told by `reconcile`."""
    if not obj.get("spec", {}).get("autoscaling"):
        return None
    try:
        return ServedModel.parse(obj)
    except ValidationError:
        return None
