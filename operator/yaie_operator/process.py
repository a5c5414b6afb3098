"""The operator's process in a real cluster: probes, leader election, and, while it leads, the
watches and the manager. A standby reports ready; it only waits for the Lease.
"""

import asyncio
import logging
from collections.abc import Coroutine

from kubernetes.aio.client import Configuration

from yaie_api import names
from yaie_api.logs import fields
from yaie_operator.cluster import RefusedError, UnreachableError
from yaie_operator.config import OperatorConfig
from yaie_operator.manager import Manager
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.monitoring.probes import serve
from yaie_operator.watch.kopf_watcher import Watcher, watched_paths
from yaie_operator.watch.kube import ChangeQueue, KubeCluster, serves_models
from yaie_operator.watch.kube_api import KubeApi, NoCredentialsError, load_configuration
from yaie_operator.watch.leader import KubeLeases, Leader
from yaie_operator.watch.watch_health import WatchHealth

log = logging.getLogger(__name__)
RETRY_S = 2.0
LEASE_TIMEOUT_S = 3.0


class OperatorProcess:
    """One operator process.

    `lease`: (namespace of the Lease, this process's identity); None: lead without an election.
    """

    def __init__(
        self,
        config: OperatorConfig,
        *,
        kubeconfig: str | None,
        lease: tuple[str, str] | None,
        host: str,
        port: int,
    ) -> None:
        self._config = config
        self._kubeconfig = kubeconfig
        self._lease = lease
        self._address = (host, port)
        self._metrics = Metrics()
        self._manager: Manager | None = None
        self._watches: WatchHealth | None = None

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop` is set, and return the exit code: 1 if there are no credentials."""
        host, port = self._address
        try:
            configuration = await load_configuration(self._kubeconfig)
        except NoCredentialsError as error:
            log.critical("cannot start", extra=fields(error=str(error)))
            return 1
        async with serve(self._metrics, host=host, port=port, is_ready=self._is_ready) as bound:
            log.info("probes and metrics", extra=fields(host=host, port=bound))
            await self._compete(configuration, stop)
        return 0

    def _is_ready(self) -> bool:
        """Whether this process is a standby, or a leader that has listed all objects and whose
        watches are answered.
        """
        if self._manager is None or self._watches is None:
            return True
        unreadable = tuple(self._manager.unreadable)
        absent = watched_paths(unreadable) if unreadable else []  # (): the whole cluster
        return self._manager.synced and not self._watches.trouble(but=absent)

    async def _compete(self, configuration: Configuration, stop: asyncio.Event) -> None:
        async def lead(stop: asyncio.Event) -> None:
            await self._lead(configuration, stop)

        if self._lease is None:
            await lead(stop)
            return
        namespace, identity = self._lease
        api = KubeApi(configuration, timeout_s=LEASE_TIMEOUT_S)
        try:
            leases = KubeLeases(api, namespace=namespace, name=names.OPERATOR_LEASE)
            await Leader(leases, identity).run(stop, lead)
        finally:
            await api.close()

    async def _lead(self, configuration: Configuration, stop: asyncio.Event) -> None:
        api = KubeApi(configuration)
        self._metrics.leader.set(1)
        try:
            if await _unless(stop, _crd(api)):
                await self._manage(api, stop)
        finally:
            self._metrics.leader.set(0)
            await api.close()

    async def _manage(self, api: KubeApi, stop: asyncio.Event) -> None:
        feed = ChangeQueue()
        cluster = KubeCluster(api, feed, namespaces=self._config.namespaces)
        self._manager = Manager(cluster, self._config, metrics=self._metrics)
        watcher = Watcher(
            feed.push, kubeconfig=self._kubeconfig, namespaces=self._config.namespaces
        )
        self._watches = watcher.health
        self._metrics.watch_age_seconds.set_function(lambda: watcher.health.age_s)
        watcher.start()
        try:
            await self._manager.run(stop)
        finally:
            await asyncio.to_thread(watcher.stop)


async def _crd(api: KubeApi) -> None:
    """Wait until the API server serves InferenceModels."""
    log.info("waiting for the CRD", extra=fields(crd=f"{names.PLURAL}.{names.GROUP}"))
    while True:
        try:
            if await serves_models(api):
                return
        except (UnreachableError, RefusedError) as error:
            log.warning("discovery failed", extra=fields(error=str(error)))
        await asyncio.sleep(RETRY_S)


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Run `work` until it ends or `stop` is set; whether it ended first."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    done, pending = await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return working in done and not stop.is_set()
