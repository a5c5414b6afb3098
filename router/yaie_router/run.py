"""Runs the router: assemble it, list and watch, serve, drain, end.

    starting ──first list──▶ ready ──SIGTERM──▶ draining: not ready, still accepting
                                          └──drain_delay_s──▶ closed to new connections
                                                 └──streams done or drain_timeout_s──▶ exit
A second signal skips the waiting.
"""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
from aiohttp import web

from yaie_api import garbage
from yaie_api.http.access.origin import is_loopback
from yaie_api.logs import fields
from yaie_api.names import GROUP, LABEL_MANAGED_BY, MANAGED_BY, PLURAL, VERSION
from yaie_router.app import App
from yaie_router.balancing.admission import Admission
from yaie_router.balancing.holding import Holding
from yaie_router.config import Config
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.reach import Reach
from yaie_router.discovery.watch import Access, Watcher, in_cluster
from yaie_router.downstream.edge import Edge
from yaie_router.downstream.metrics_port import MetricsPort
from yaie_router.downstream.tls import Certificates, TlsSite
from yaie_router.health.monitor import Monitor, Told
from yaie_router.health.retry_budget import RetryBudgets
from yaie_router.health.watchdog import Watchdog
from yaie_router.metrics import Metrics, Silence
from yaie_router.prefixes.placer import Placer
from yaie_router.prefixes.subscriptions import Subscriptions, feed_session
from yaie_router.tenants.keys import keys_of
from yaie_router.tenants.mount import Entries, Mount
from yaie_router.tenants.tenants import Tenants
from yaie_router.upstream.attempt import probe_session
from yaie_router.upstream.deadlines import LONGEST_S, Deadlines
from yaie_router.upstream.failover.failover import Failover
from yaie_router.upstream.http1.pool import Pool
from yaie_router.upstream.proxy import Proxy

log = logging.getLogger(__name__)

_POLL_S = 0.05
MOST_DESCRIPTORS = 1 << 20
"""More than that many are refused by kernels."""
_BACKLOG = 4096


async def run(config: Config, signals: "Signals") -> None:
    """Serve until `signals` asks to stop, then drain.

    Raises:
        ExceptionGroup: what failed.

    """
    access = _access(config)
    raise_descriptor_limit()
    certificates = _certificates(config)

    def changed() -> None:
        monitor.changed()
        proxy.retain({model.name for model in directory.all()})
        tenants.changed(directory.all(), routers())
        holding.changed()
        subscriptions.changed()

    def routers() -> int:
        return directory.routers or config.replicas

    directory = Directory(changed)
    placer = Placer(config.prefix_key)
    subscriptions = Subscriptions(directory, placer)
    admission = Admission(time.monotonic)
    holding = Holding(
        directory,
        most=config.max_pending,
        timeout_s=config.pending_timeout_s,
        in_flight=admission.in_flight_by_model,
        replicas=routers,
    )
    tenants = Tenants(
        time.monotonic,
        takes_turns=config.api_key_dir is not None,
        routers=config.replicas,
        most_queued=config.max_queued,
        queue_timeout_s=config.queue_timeout_s,
    )
    silence = Silence()
    metrics = Metrics(silence.seconds)
    monitor = Monitor(
        directory,
        Watchdog(time.monotonic),
        told=Told(ejected=metrics.ejected, probed=metrics.probed),
        suspect_after_s=config.suspect_after_s,
    )
    spans = None
    if config.tracing is not None:
        spans = config.tracing.open("yaie-router", metrics.dropped_spans.inc)
    async with (
        access.session() as api,
        probe_session(config.connect_timeout_s) as probes,
        feed_session(config.connect_timeout_s) as feeds,
    ):
        pool = Pool(config.connect_timeout_s)
        failover = Failover(
            metrics,
            most_replays=config.max_replays,
            most_bytes=config.max_replay_bytes,
            wait_s=min(LONGEST_S, config.silence_timeout_s),
        )
        proxy = Proxy(
            pool,
            directory,
            admission=admission,
            monitor=monitor,
            budgets=RetryBudgets(),
            placer=placer,
            metrics=metrics,
            deadlines=Deadlines(
                first_token_s=config.first_token_timeout_s,
                inter_token_s=config.inter_token_timeout_s,
                prompt_bytes_per_s=config.prompt_bytes_per_s,
                silence_s=config.silence_timeout_s,
            ),
            failover=failover,
            forward_keys=not (config.api_keys or config.api_key_dir),
        )
        app = App(
            config,
            directory,
            admission,
            proxy,
            metrics,
            holding=holding,
            monitor=monitor,
            tenants=tenants,
            placer=placer,
            spans=spans,
        )
        mounts = tuple(_mounts(config, app, tenants))
        for mount in mounts:
            mount.look()
        edge = Edge(
            app.handle,
            header_timeout_s=config.header_timeout_s,
            client_stall_s=config.client_stall_s,
        )
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(watcher.run())
                for watcher in _watchers(config.namespace, api, access, directory, silence.heard)
            ]
            works = [
                *(mount.run() for mount in mounts),
                edge.cut_off_stalled(),
                garbage.collect_when_idle(lambda: admission.in_flight == 0),
                monitor.run(probes),
                Reach(directory).run(probes),
            ]
            if certificates is not None:
                works.append(certificates.run())
            if config.prefix_key:
                works.append(subscriptions.run(feeds))
            background += [group.create_task(work) for work in works]
            try:
                async with _metrics_port(config, app):
                    await _serve(config, edge, app, admission, signals, certificates=certificates)
            finally:
                for task in background:
                    task.cancel()
                pool.close()
                failover.bodies.close()
                if spans is not None:
                    spans.close()


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: each stream takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _watchers(
    namespace: str,
    api: aiohttp.ClientSession,
    access: Access,
    directory: Directory,
    heard: Callable[[], None],
) -> Iterator[Watcher]:
    models, slices = models_path(namespace), slices_path(namespace)
    ours = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    yield Watcher(api, access, models, directory.models, heard=heard)
    yield Watcher(api, access, slices, directory.slices, selector=ours, heard=heard)


def _mounts(config: Config, app: App, tenants: Tenants) -> Iterator[Mount]:
    def take_keys(entries: Entries) -> None:
        keys = keys_of(entries)
        app.gate.accept_only(keys)
        tenants.retain(keys.tenants)

    if config.api_key_dir is not None:
        yield Mount(config.api_key_dir, take_keys)
    if config.limits_dir is not None:
        yield Mount(config.limits_dir, tenants.take_limits)


async def _serve(
    config: Config,
    edge: Edge,
    app: App,
    admission: Admission,
    signals: "Signals",
    *,
    certificates: Certificates | None,
) -> None:
    runner = web.ServerRunner(edge, shutdown_timeout=0.5)
    await runner.setup()
    try:
        sites = _sites(runner, config, certificates)
        for site in sites:
            await site.start()
        app.gate.local_only = all(is_loopback(str(address[0])) for address in runner.addresses)
        log.info("serving", extra=fields(host=config.host, port=config.port))
        if not (app.gate.asks_for_keys or app.gate.local_only):
            log.warning("anyone who reaches this address can use the models: no API key is set")
        await signals.stop.wait()
        app.draining = True
        log.info("draining", extra=fields(in_flight=admission.in_flight))
        await signals.pause(config.drain_delay_s)
        for site in sites:
            await site.stop()
        await _drain(config.drain_timeout_s, admission, signals)
    finally:
        await runner.cleanup()
    log.info("stopped", extra=fields(in_flight=admission.in_flight))


@contextlib.asynccontextmanager
async def _metrics_port(config: Config, app: App) -> AsyncIterator[None]:
    """Serve the metrics, to the end of the drain."""
    port = MetricsPort(app.exposition)
    timeouts = {
        "header_timeout_s": config.header_timeout_s,
        "client_stall_s": config.client_stall_s,
    }
    runner = web.ServerRunner(Edge(port.handle, **timeouts), shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, config.host, config.metrics_port).start()
        port.gate.local_only = all(is_loopback(str(address[0])) for address in runner.addresses)
        yield
    finally:
        await runner.cleanup()


async def _drain(timeout_s: float, admission: Admission, signals: "Signals") -> None:
    deadline_s = time.monotonic() + timeout_s
    while admission.in_flight and time.monotonic() < deadline_s and not signals.hurry.is_set():
        await signals.pause(_POLL_S)


def _certificates(config: Config) -> Certificates | None:
    if config.ssl_certfile is None or config.ssl_keyfile is None:
        return None
    return Certificates(config.ssl_certfile, config.ssl_keyfile)


def _sites(
    runner: web.ServerRunner, config: Config, certificates: Certificates | None
) -> list[web.BaseSite]:
    """Return the router's own address and, under `yaie up`, the socket that it inherits."""
    site: web.BaseSite = web.TCPSite(runner, config.host, config.port, backlog=_BACKLOG)
    if certificates is not None:
        tls = certificates.context
        site = TlsSite(runner, config.host, config.port, ssl_context=tls, backlog=_BACKLOG)
    sites = [site]
    if config.listen_fd is not None:
        inherited = socket.socket(fileno=config.listen_fd)
        sites.append(web.SockSite(runner, inherited, backlog=_BACKLOG))
    return sites


class Signals:
    """SIGTERM and SIGINT: the first sets `stop`, the second sets `hurry`."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def install(self) -> None:
        """Handle the process's signals. Needs a running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.raised)

    def raised(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()

    async def pause(self, seconds: float) -> None:
        """Sleep, but return at once when `hurry` is set."""
        try:
            async with asyncio.timeout(seconds):
                await self.hurry.wait()
        except TimeoutError:
            return


def models_path(namespace: str) -> str:
    """Return the REST path of the InferenceModels."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"


def slices_path(namespace: str) -> str:
    """Return the REST path of the EndpointSlices."""
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def _access(config: Config) -> Access:
    if config.api_socket is not None:
        return Access("http://localhost", socket=config.api_socket)
    if config.api_address is None:
        msg = "config.parse ensures that there is an API server"
        raise ValueError(msg)
    return in_cluster(*config.api_address)
