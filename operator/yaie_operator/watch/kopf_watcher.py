"""Watches the cluster with kopf and passes changes on. No other file imports kopf.

kopf runs in its own thread and event loop: in the operator's loop it would replace the SIGTERM
handler and take seconds to stop. It only lists and watches; it writes to no object.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf

from yaie_api import names
from yaie_operator.cluster import Kind, WatchEvent
from yaie_operator.watch import kinds
from yaie_operator.watch.kube_api import load_configuration

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

Push = Callable[[WatchEvent], None]


class Watcher:
    """kopf in its own thread. `push` receives changes; `died` is called if kopf ends by itself."""

    def __init__(
        self,
        push: Push,
        *,
        kubeconfig: str | None,
        namespaces: tuple[str, ...],
        died: Callable[[], None],
    ) -> None:
        self._registry = _registry(push, kubeconfig)
        self._namespaces = namespaces
        self._died = died
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
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry,
                    settings=_settings(),
                    identity=IDENTITY,  # type: ignore[arg-type]  # a str by a name that is not public
                    standalone=True,
                    clusterwide=not self._namespaces,
                    namespaces=self._namespaces,
                    stop_flag=self._stop,
                )
            )
        except Exception:
            log.exception("watches failed")
        if not self._stop.is_set():
            self._died()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    selector = ",".join(f"{key}={value}" for key, value in kinds.OURS.items())
    for kind in kinds.WATCHED:
        settings.watching.label_selectors[_resource(kind)] = selector
    for kind, name in kinds.ONLY_NAMES.items():
        settings.watching.field_selectors[_resource(kind)] = f"metadata.name={name}"
    return settings


def _registry(push: Push, kubeconfig: str | None) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection(kubeconfig)

    for kind in (kinds.INFERENCE_MODEL, *kinds.WATCHED):
        kopf.on.event(*_resource(kind), registry=registry)(_handler(kind, push))
    return registry


def _handler(kind: Kind, push: Push) -> Callable[..., Any]:
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


def _resource(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural
