"""Watches the cluster with kopf and passes changes on. No other file imports kopf.

A watch never ends for good: kopf repeats its requests for ever, and what ends or goes deaf in spite
of that is started again. `watch_health` knows of every watch whether it can be relied on.

kopf runs in its own thread and event loop: in the operator's loop it would replace the SIGTERM
handler and take seconds to stop. It only lists and watches; it writes to no object, and objects are
taken out of the answers before they reach it (`watch.answers`).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final

import aiohttp
import kopf

from yaie_api import names
from yaie_api.logs import fields
from yaie_operator.cluster import Kind, WatchEvent
from yaie_operator.watch import kinds
from yaie_operator.watch.answers import Push, answers
from yaie_operator.watch.kube import path_of
from yaie_operator.watch.kube_api import load_configuration
from yaie_operator.watch.watch_health import WATCH_S, WatchHealth

log = logging.getLogger(__name__)
RELOGIN: Final = timedelta(minutes=5)
"""Interval at which kopf reloads credentials, because service account tokens rotate."""

QUIET: Final = {
    "kopf.objects": logging.WARNING,  # logs a line per event
    "kopf.activities": logging.WARNING,
    "kopf._core.engines.activities": logging.WARNING,
    "kopf._core.reactor.running": logging.ERROR,  # warns that it does not handle signals
}

IDENTITY: Final = names.FIELD_MANAGER
"""kopf's identity. Without one kopf looks up the user's name, which a pod's user may not have."""

RESTART_S: Final = (1.0, 2.0, 5.0)
"""Seconds before the first, second and every later restart of watches that ended."""
CHECK_S: Final = 0.5
STOP_S: Final = 3.0


class EndlessBackoff:
    """Seconds between attempts of a request. It never ends: kopf gives up a watch when it does."""

    def __iter__(self) -> Iterator[float]:
        return chain((0.5, 1.0, 2.0), repeat(3.0))


class Watcher:
    """kopf in its own thread; `push` receives changes, `health` learns what becomes of the watches.

    Watches that end, or that nobody asks for any more, are started again.
    """

    def __init__(
        self,
        push: Push,
        *,
        kubeconfig: str | None,
        namespaces: tuple[str, ...],
        health: WatchHealth | None = None,
    ) -> None:
        self.health = health or WatchHealth(watched_paths(namespaces))
        self._push = push
        self._kubeconfig = kubeconfig
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        for name, level in QUIET.items():
            logging.getLogger(name).setLevel(level)
        self._thread.start()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """Stop the watches and wait for the thread. Blocks, so call it from another thread."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        for wait_s in chain(RESTART_S, repeat(RESTART_S[-1])):
            try:
                asyncio.run(self._watch())
            except Exception as error:  # noqa: BLE001 - whatever it is, the watches start again
                log.warning("watches ended", extra=fields(error=repr(error)))
            if self._stop.wait(wait_s):
                return
            log.info("watches start again", extra=fields(trouble=self.health.trouble()))

    async def _watch(self) -> None:
        """Run kopf until it ends, until `stop`, or until a watch is deaf."""
        ended = threading.Event()
        running = asyncio.ensure_future(
            kopf.operator(
                registry=_registry(self._push, self._kubeconfig, self.health),
                settings=_settings(),
                identity=IDENTITY,  # type: ignore[arg-type]  # a str by a name that is not public
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=ended,
            )
        )
        self.health.restarted()
        while not (running.done() or self._stop.is_set() or self.health.is_deaf):
            await asyncio.wait({running}, timeout=CHECK_S)
        ended.set()
        await asyncio.wait({running}, timeout=STOP_S)
        if running.done():
            running.result()
        running.cancel()  # after an error of a watch, kopf may never end by itself


def watched_paths(namespaces: tuple[str, ...]) -> list[str]:
    """URL paths of all watches."""
    return [
        path_of(kind, namespace=namespace)
        for kind in (kinds.INFERENCE_MODEL, *kinds.WATCHED)
        for namespace in (namespaces or (None,))
    ]


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 3
    settings.networking.error_backoffs = EndlessBackoff()
    settings.watching.server_timeout = WATCH_S
    settings.watching.inactivity_timeout = WATCH_S + 5
    selector = ",".join(f"{key}={value}" for key, value in kinds.OURS.items())
    for kind in kinds.WATCHED:
        settings.watching.label_selectors[_resource(kind)] = selector
    for kind, name in kinds.ONLY_NAMES.items():
        settings.watching.field_selectors[_resource(kind)] = f"metadata.name={name}"
    return settings


def _registry(push: Push, kubeconfig: str | None, health: WatchHealth) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return session_of(await connection(kubeconfig), health, push)

    for kind in (kinds.INFERENCE_MODEL, *kinds.WATCHED):
        kopf.on.event(*_resource(kind), registry=registry)(_handler(kind, push))
    return registry


def _handler(kind: Kind, push: Push) -> Callable[..., Any]:
    """What makes kopf watch a kind. It gets the objects that `watch.answers` did not understand."""

    async def changed(event: Mapping[str, Any], **_: Any) -> None:
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        # No type means that the object was listed when the watch began.
        push(WatchEvent(event["type"] or "ADDED", {**event["object"], **typed}))

    return changed


async def connection(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """The operator's credentials as kopf's type."""
    configuration = await load_configuration(kubeconfig)
    token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    scheme, _, secret = (token or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=secret or None,
        expiration=datetime.now(UTC) + RELOGIN if secret else None,
    )


def session_of(info: kopf.ConnectionInfo, health: WatchHealth, push: Push) -> kopf.AiohttpSession:
    """An HTTP session for kopf. It tells `health` of every answer and failure, and `push` what the
    answers bring.
    """
    trace = aiohttp.TraceConfig()

    async def ended(_: Any, __: Any, what: aiohttp.TraceRequestEndParams) -> None:
        is_watch = "watch" in what.url.query
        health.answered(what.url.path, what.response.status, is_watch=is_watch)

    async def failed(_: Any, __: Any, what: aiohttp.TraceRequestExceptionParams) -> None:
        health.failed(what.url.path, repr(what.exception))

    trace.on_request_end.append(ended)
    trace.on_request_exception.append(failed)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        response_class=answers(push),
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(
        server=info.server, aiohttp_session=session, expiration=info.expiration
    )


def _resource(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural
