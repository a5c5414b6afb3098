"""Opens the readiness gates of engines that the routers reach.

It asks the routers only while an engine waits. A gate that the API server refuses to open is tried
again as other refused writes are (`reconcile.refusals`). The leader runs it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from yaie_api.logs import fields
from yaie_operator.autoscaling.autoscaler import Pages
from yaie_operator.autoscaling.scrape import places
from yaie_operator.cluster import (
    Cluster,
    ConflictError,
    NotFoundError,
    Object,
    RefusedError,
    UnreachableError,
)
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.reconcile.pods import is_ready
from yaie_operator.reconcile.refusals import Refusals, explain
from yaie_operator.reconcile.rollout import gate

log = logging.getLogger(__name__)
_FAILURES = (ConflictError, NotFoundError, UnreachableError)


class Gatekeeper:
    """Opens the gates of a store's pods."""

    def __init__(self, cluster: Cluster, store: Store, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._refused = Refusals()

    async def look(self, pages: Pages) -> None:
        """Look at every engine that waits once."""
        waiting: dict[str, list[tuple[Object, bool]]] = {}
        for model in (model["metadata"] for model in self._store.models()):
            pods = self._store.pods(model["namespace"], model["name"])
            waiting.setdefault(model["namespace"], []).extend(_waiting(pods))
        self._forget()
        for namespace, found in waiting.items():
            if found:
                await self._safely(pages, namespace, found)

    async def _safely(
        self, pages: Pages, namespace: str, waiting: Sequence[tuple[Object, bool]]
    ) -> None:
        try:
            await self._namespace(pages, namespace, waiting)
        except Exception:
            # An unexpected error for one namespace must not stop the others.
            log.exception("gates not looked at", extra=fields(namespace=namespace))

    async def _namespace(
        self, pages: Pages, namespace: str, waiting: Sequence[tuple[Object, bool]]
    ) -> None:
        reports: Mapping[str, frozenset[str] | None] = {}
        if any(others_ready for _, others_ready in waiting):
            reports = await self._reports(pages, namespace)
        for pod, others_ready in waiting:
            now = self._clock()
            opened = gate.opening(pod, reports, others_ready=others_ready, now=now)
            if opened is not None:
                await self._open(pod, opened, now)

    async def _reports(self, pages: Pages, namespace: str) -> dict[str, frozenset[str] | None]:
        """What each ready router reaches; None for one that does not say."""
        routers = [pod for pod in self._store.pods(namespace, "") if is_ready(pod)]
        found = await pages.routers(places(routers))
        figures = {pod["metadata"]["name"]: found.get(pod["metadata"]["name"]) for pod in routers}
        return {pod: one.reached if one else None for pod, one in figures.items()}

    async def _open(self, pod: Object, opened: gate.Opening, now: datetime) -> None:
        """Open a pod's gate, unless that was refused and must wait."""
        metadata, key = pod["metadata"], _key(pod)
        if self._refused.pending(key, metadata["uid"], now) is not None:
            return
        about = {"namespace": metadata["namespace"], "pod": metadata["name"]}
        try:
            changed = await self._cluster.set_pod_condition(pod, gate.condition(opened, now))
        except RefusedError as error:
            told = explain(Ref.of(pod), str(error))
            self._refused.add(key, metadata["uid"], told, now)
            log.warning("gate not opened", extra=fields(**about, error=told))
            return
        except _FAILURES as error:
            log.warning("gate not opened; tried again", extra=fields(**about, error=str(error)))
            return
        self._refused.clear(key)
        self._store.put(changed)
        log.info("gate opened", extra=fields(**about, reason=opened.reason))

    def _forget(self) -> None:
        """Drop what is known of pods that are gone."""
        for key in self._refused.refused_keys():
            _, namespace, name = key.split("/")
            if self._store.get(Ref("Pod", namespace, name)) is None:
                self._refused.clear(key)


def _key(pod: Object) -> str:
    return f"gate/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _waiting(pods: Sequence[Object]) -> list[tuple[Object, bool]]:
    """Pods that wait for their gate, each with whether another pod is ready."""
    return [(pod, any(map(is_ready, pods))) for pod in pods if gate.waits(pod)]
