"""Assembles a cluster on this machine: lock, store, controllers, kubelet and REST API.

    async with Machine.open(state, published=…) as machine:   # ends orphans, removes old pods
        Manager(machine.cluster, …)                           # the operator's own code

Leaving the block ends every process that it started, with SIGTERM and then SIGKILL.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import aiohttp
from aiohttp import web

from yaie_api.logs import fields
from yaie_api.resource import crd
from yaie_local import kinds, logfile
from yaie_local.apiserver.admission import Admission
from yaie_local.apiserver.api import LocalAPI
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.apiserver.journal import Journal
from yaie_local.apiserver.store import Store
from yaie_local.cluster import LocalCluster
from yaie_local.controllers import jobs
from yaie_local.controllers.manager import Controllers
from yaie_local.kubelet import gpus, processes, volumes
from yaie_local.kubelet.addresses import AddressPool
from yaie_local.kubelet.gpus import GPUPool
from yaie_local.kubelet.kubelet import Kubelet
from yaie_local.kubelet.pod_worker import BackOff, Host
from yaie_local.kubelet.publish import Doorman, Published
from yaie_local.state import StateFolder, StateLock
from yaie_operator.cluster import Object

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_GATHER_S: Final = 0.005
_RETRY_S: Final = 1.0


@dataclass(frozen=True)
class Settings:
    """Settings of a machine. `environ` is the environment that its processes inherit."""

    shutdown_grace_s: float = 10.0
    back_off: BackOff = field(default_factory=BackOff)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    gpu_ids: tuple[str, ...] | None = None


class Machine:
    """Owner of everything that runs here; created by `open`."""

    def __init__(
        self,
        state: StateFolder,
        store: Store,
        kubelet: Kubelet,
        published: Published | None,
    ) -> None:
        self.state = state
        self.verbs = Verbs(store, Admission(crd.render(local=True)))
        self.cluster = LocalCluster(self.verbs)
        self._store = store
        self._kubelet = kubelet
        self._controllers = Controllers(self.verbs, kubelet)
        self._doorman = Doorman(published) if published else None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        state: StateFolder,
        *,
        settings: Settings | None = None,
        published: Published | None = None,
    ) -> "AsyncIterator[Machine]":
        """Run the machine while the context lasts.

        Raises:
            StateError: the state folder cannot be used.

        """
        settings = settings or Settings()
        state.create()
        lock = StateLock(state)
        try:
            ended = processes.end_orphans(state.pods)
            if ended:
                log.warning("ended processes of a crashed run", extra=fields(count=ended))
            volumes.discard_all(state)
            logfile.prune(state.logs)
            store = Store(Journal(state.journal))
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True), trust_env=False
            ) as session:
                kubelet = _kubelet(state, store, session, settings, published)
                machine = cls(state, store, kubelet, published)
                async with machine.living(settings):
                    yield machine
        finally:
            lock.release()

    def hurry(self) -> None:
        """Kill all processes that still run instead of waiting for them."""
        self._kubelet.hurry()

    @contextlib.asynccontextmanager
    async def living(self, settings: Settings) -> AsyncIterator[None]:
        """Serve the API and run the controllers while the block runs; then end every pod."""
        _forget_last_run(self._store)
        async with _serving(LocalAPI(self.verbs, self.state), self.state):
            control = asyncio.create_task(self._control())
            try:
                yield
            finally:
                control.cancel()
                await asyncio.gather(control, return_exceptions=True)
                await self._kubelet.shutdown(settings.shutdown_grace_s)
                await self._stand(needed=False)
                self._store.close()

    async def _control(self) -> None:
        """Run the controllers after every change, and every _TICK_S for what depends on time."""
        changed = asyncio.Event()
        self._store.subscribe(changed.set)
        while True:
            changed.clear()
            try:
                self._controllers.settle(time.time())
                await self._stand(needed=not self._kubelet.is_publishing)
            except Exception:
                log.exception("the controllers failed; trying again")
                await asyncio.sleep(_RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await changed.wait()
            await asyncio.sleep(_GATHER_S)

    async def _stand(self, *, needed: bool) -> None:
        if self._doorman is not None:
            await self._doorman.stand(needed=needed)


def _kubelet(
    state: StateFolder,
    store: Store,
    session: aiohttp.ClientSession,
    settings: Settings,
    published: Published | None,
) -> Kubelet:
    ids = settings.gpu_ids
    found = list(ids) if ids is not None else gpus.detect(settings.environ)
    return Kubelet(
        Host(store, state, session, settings.environ, settings.back_off),
        gpu_pool=GPUPool(found),
        addresses=AddressPool(str(state.path)),
        published=published,
    )


def _forget_last_run(store: Store) -> None:
    """Delete pods, EndpointSlices and all status, because no process of the last run is left. What
    is in a claim is still there: Jobs that have ended and what models say of their weights stay.
    """
    for resource in (kinds.PODS, kinds.ENDPOINT_SLICES):
        for obj in store.list(resource.kind):
            store.delete(obj)
    for obj in store.list(kinds.DEPLOYMENTS.kind):
        store.update(_with_status(obj))
    for obj in store.list(kinds.JOBS.kind):
        if not jobs.is_done(obj):
            store.update(_with_status(obj))
    for obj in store.list(kinds.MODELS.kind):
        old = obj.get("status") or {}
        store.update(_with_status(obj, {key: old[key] for key in _LASTING if key in old}))


_LASTING: Final = ("model", "cache")


def _with_status(obj: Object, status: Object = MappingProxyType({})) -> Object:
    rest = {key: value for key, value in obj.items() if key != "status"}
    return {**rest, "status": dict(status)} if status else rest


@contextlib.asynccontextmanager
async def _serving(api: LocalAPI, state: StateFolder) -> AsyncIterator[None]:
    """Serve the REST API on its socket, which only this user may open."""
    state.socket.unlink(missing_ok=True)
    runner = web.AppRunner(api.application(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.UnixSite(runner, str(state.socket))
    await site.start()
    state.socket.chmod(0o600)
    try:
        yield
    finally:
        await runner.cleanup()
        state.socket.unlink(missing_ok=True)
