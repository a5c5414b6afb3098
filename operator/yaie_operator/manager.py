"""The manager: full lists, watch events and timers wake keys, and workers reconcile the keys.

The same manager serves a real cluster and the local one; `process.py` adds what only a real cluster
needs (kopf's watches, leader election, probes).
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from yaie_api.logs import fields
from yaie_operator.autoscaling import scrape
from yaie_operator.autoscaling.autoscaler import Autoscaler, Pages
from yaie_operator.autoscaling.prometheus import Prometheus
from yaie_operator.autoscaling.size_keeper import SizeKeeper
from yaie_operator.cluster import (
    Cluster,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    WatchEvent,
)
from yaie_operator.config import OperatorConfig
from yaie_operator.gates import Gatekeeper
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Store, keys_of, model_key, namespace_key
from yaie_operator.reconcile.reconciler import Reconciler
from yaie_operator.watch import downloads, kinds
from yaie_operator.watch.workqueue import ShutDownError, WorkQueue

log = logging.getLogger(__name__)
REWATCH_S = 1.0
FINISH_S = 3.0
"""Seconds in which workers may finish what they have begun when the manager stops: of a status that
is written and an Event that is not, nobody would tell the rest."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def jitter() -> float:
    """A random factor that keeps periodic work of several processes from coinciding."""
    return random.uniform(0.8, 1.2)  # noqa: S311 - not a secret


class Manager:
    """Keeps one cluster's objects in the state that its InferenceModels specify."""

    def __init__(
        self,
        cluster: Cluster,
        config: OperatorConfig,
        *,
        clock: Callable[[], datetime] = utc_now,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.unreadable: frozenset[str] = frozenset()
        self._synced = asyncio.Event()
        self._cluster = cluster
        self._config = config
        self._store = Store()
        self._queue = WorkQueue(
            retry_base_s=config.retry_base_s,
            retry_max_s=config.retry_max_s,
            rest_s=config.rest_s,
            jitter=jitter,
        )
        self._autoscaler = Autoscaler(
            cluster, self._store, clock, metrics=self.metrics, wake=self._wake
        )
        self._gatekeeper = Gatekeeper(cluster, self._store, clock)
        self._sizes = SizeKeeper(self._store, wake=self._wake)
        self._reconciler = Reconciler(
            cluster,
            self._store,
            config,
            clock,
            metrics=self.metrics,
            wake=self._wake,
            scaling=self._autoscaler.report,
            progress=downloads.ask,
            sizes=self._sizes.sizes,
        )
        self.metrics.queue_depth.set_function(lambda: float(len(self._queue)))
        self.metrics.models.set_function(lambda: float(len(self._store.models())))

    @property
    def synced(self) -> bool:
        """Whether all objects have been listed once. Before that, nothing is reconciled."""
        return self._synced.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """List, watch and reconcile until `stop` is set; then finish what workers have begun, for
        `FINISH_S` at most.

        Raises:
            ExceptionGroup: a task of the manager failed with an unexpected error.

        """
        parts = [
            self._resyncs,
            self._watch,
            self._autoscale,
            self._open_gates,
        ]
        try:
            self.metrics.shown_models = self._store.models
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part()) for part in parts]
                workers = [group.create_task(self._work()) for _ in range(self._config.workers)]
                await stop.wait()
                for task in tasks:
                    task.cancel()
                await self._finish(workers)
        finally:
            self.metrics.shown_models = tuple  # who leads next speaks of them
            self._queue.close()

    async def _finish(self, workers: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the keys that workers have, and end the workers."""
        self._queue.shut_down()
        if self.synced:  # before, no worker has a key
            await asyncio.wait(workers, timeout=FINISH_S)
        for worker in workers:
            worker.cancel()

    def notify(self, change: WatchEvent) -> None:
        """Store an event's object and wake the affected keys; an outdated event wakes none."""
        take = self._store.remove if change.type == "DELETED" else self._store.put
        if take(change.object):
            for key in keys_of(change.object, self._store.models):
                self._wake(key)

    async def resync(self) -> None:
        """Replace the store's contents by full lists and wake every key.

        A namespace that the API server refuses (it may not exist yet) stays as it is known, and the
        others go on.

        Raises:
            NotFoundError: the API server does not know a kind, for instance without the CRD.
            UnreachableError: the API server does not answer.

        """
        unreadable = set()
        for namespace in self._config.namespaces or (None,):
            try:
                await self._list_all(namespace)
            except RefusedError as error:
                if namespace is None:
                    raise
                unreadable.add(namespace)
                if namespace not in self.unreadable:
                    about = fields(watched_namespace=namespace, error=str(error))
                    log.warning("cannot read a namespace; it is tried again", extra=about)
        self.unreadable = frozenset(unreadable)
        self._synced.set()
        for namespace in self._store.namespaces():
            self._wake(namespace_key(namespace))
        for metadata in (model["metadata"] for model in self._store.models()):
            self._wake(model_key(metadata["namespace"], metadata["name"]))

    async def _list_all(self, namespace: str | None) -> None:
        for kind in (*kinds.WATCHED, kinds.INFERENCE_MODEL):
            since = self._store.mark()
            labels = None if kind == kinds.INFERENCE_MODEL else kinds.OURS
            objects = await self._cluster.list(kind, namespace=namespace, labels=labels)
            if self.synced and self._store.lags(kind, objects, namespace=namespace):
                await asyncio.sleep(self._config.watch_lag_s)
                late = self._store.lags(kind, objects, namespace=namespace)
                self.metrics.resync_repairs.inc(late)
            self._store.replace(kind, objects, since=since, namespace=namespace)

    def _wake(self, key: str) -> None:
        if key.startswith("namespace/"):
            self._queue.add_after(key, self._config.debounce_s)
        else:
            self._queue.add(key)

    async def _resyncs(self) -> None:
        while True:
            await self._trying(self.resync)
            await asyncio.sleep(self._config.resync_s * jitter() if self.synced else REWATCH_S)

    async def _watch(self) -> None:
        while True:
            await self._trying(self._follow)
            await asyncio.sleep(REWATCH_S)

    async def _autoscale(self) -> None:
        async with scrape.session() as session:
            pages: Pages = scrape.Scraper(session, key=self._config.metrics_key)
            if self._config.prometheus_url:
                pages = Prometheus(session, self._config.prometheus_url)
            while True:
                await asyncio.sleep(self._config.autoscale_s * jitter())
                if self.synced:
                    await self._autoscaler.look(pages)
                    await self._sizes.look(pages)

    async def _open_gates(self) -> None:
        """Ask the routers themselves, not Prometheus, which knows their figures too late."""
        async with scrape.session() as session:
            pages = scrape.Scraper(session, key=self._config.metrics_key)
            while True:
                await asyncio.sleep(self._config.gate_s)
                if self.synced:
                    await self._gatekeeper.look(pages)

    async def _follow(self) -> None:
        async for change in self._cluster.watch():
            self.notify(change)

    async def _trying(self, part: Callable[[], Awaitable[None]]) -> None:
        """Log an unreachable or refusing API server and go on: it is no defect of the operator."""
        try:
            await part()
        except (NotFoundError, RefusedError, UnreachableError) as error:
            log.warning("cannot observe", extra=fields(error=str(error)))

    async def _work(self) -> None:
        await self._synced.wait()
        while True:
            try:
                key = await self._queue.get()
            except ShutDownError:
                return
            try:
                await self._handle(key)
            finally:
                self._queue.done(key)
            # A pass without changes may not await at all: yield to the lease and the probes.
            await asyncio.sleep(0)

    async def _handle(self, key: str) -> None:
        started = time.monotonic()
        result = await self._reconcile(key)
        scope = key.partition("/")[0]
        self.metrics.reconciles.labels(scope=scope, result=result).inc()
        self.metrics.reconcile_seconds.labels(scope=scope).observe(time.monotonic() - started)

    async def _reconcile(self, key: str) -> str:
        """Reconcile a key and return the result's metric label; every failure is retried."""
        try:
            again_s = await self._reconciler.reconcile(key)
        except (ConflictError, NotFoundError):
            self._queue.retry(key)
            return "conflict"
        except UnreachableError as error:
            delay_s = self._queue.retry(key)
            log.warning("unreachable", extra=fields(key=key, error=str(error), retry_s=delay_s))
            return "unreachable"
        except RefusedError as error:  # a read: what is refused to be written stands in the status
            delay_s = self._queue.retry(key)
            log.warning("read refused", extra=fields(key=key, error=str(error), retry_s=delay_s))
            return "error"
        except Exception:
            # An unexpected error for one model must not stop the others.
            delay_s = self._queue.retry(key)
            log.exception("reconcile failed", extra=fields(key=key, retry_s=delay_s))
            return "error"
        self._queue.forget(key)
        if again_s is not None:
            self._queue.add_after(key, again_s)
        return "ok"
