"""Lists and watches the Kubernetes REST API, over a unix socket (`yaie up`) or in a cluster.

`Watcher.run` keeps one `Table` equal to one resource: it lists, then watches from the list's
resourceVersion. After 410 it lists again; after any other failure it waits and reconnects. Only a
complete list replaces the table, so that an absent API server never empties it.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from yaie_api.logs import fields
from yaie_router.discovery.objects import Object

log = logging.getLogger(__name__)

WATCH_S: Final = 240
"""The API server ends a watch after this; the router gives up a silent watch a little later."""
_GRACE_S: Final = 15.0
_REQUEST_S: Final = 10.0
_BACKOFF_S: Final = (0.1, 3.0)
_PAGE: Final = 500
_FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError)
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ExpiredError(Exception):
    """410: the resourceVersion is too old to watch from; list again."""


class _Page(msgspec.Struct):
    """One page of a list."""

    items: list[Any] | None = None
    metadata: dict[str, Any] | None = None


class Sink(Protocol):
    """What a watcher fills (`endpoints.Table`)."""

    def replace(self, objects: list[Object]) -> None: ...
    def put(self, item: Object) -> None: ...
    def drop(self, item: Object) -> None: ...


@dataclass(frozen=True)
class Access:
    """How to reach the API server. `token_file` is read for every request: tokens rotate."""

    base_url: str
    socket: Path | None = None
    ca_file: Path | None = None
    token_file: Path | None = None

    def session(self) -> aiohttp.ClientSession:
        """Make a client session; the caller closes it."""
        connector: aiohttp.BaseConnector
        if self.socket is not None:
            connector = aiohttp.UnixConnector(str(self.socket), limit=0)
        else:
            tls = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
            connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        return aiohttp.ClientSession(self.base_url, connector=connector, trust_env=False)

    def headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}


def in_cluster(host: str, port: str) -> Access:
    """Use the pod's service account. Host and port are those of KUBERNETES_SERVICE_*."""
    host = f"[{host}]" if ":" in host else host
    return Access(
        base_url=f"https://{host}:{port}",
        ca_file=_SERVICE_ACCOUNT / "ca.crt",
        token_file=_SERVICE_ACCOUNT / "token",
    )


class Watcher:
    """Keeps `sink` equal to the resource at `path`. `heard`: called when the API server sends."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: Access,
        path: str,
        sink: Sink,
        *,
        selector: str = "",
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._access = access
        self._path = path
        self._sink = sink
        self._selector = {"labelSelector": selector} if selector else {}
        self._heard = heard
        self._version = ""

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                    failures = 0
                await self._watch()
            except ExpiredError:
                self._version = ""
            except _FAILURES as error:
                self._report(error, failures)
                failures += 1
            # Reconnect without a pause only after a long watch: one that ends at once would spin.
            if failures or time.monotonic() - started < 1.0:
                await asyncio.sleep(_pause_s(max(failures, 1)))

    async def _list(self) -> None:
        items: list[Object] = []
        query: dict[str, str] = {"limit": str(_PAGE)}
        while True:
            page = await self._get(query)
            listed = msgspec.convert(page, _Page)
            items += listed.items or ()
            meta = listed.metadata or {}
            if not meta.get("continue"):
                break
            query["continue"] = str(meta["continue"])
        self._sink.replace(items)
        self._version = str(meta.get("resourceVersion") or "")
        log.info("listed", extra=fields(path=self._path, count=len(items)))

    async def _watch(self) -> None:
        async for event in self._events():
            item = _object_of(event)
            if event.get("type") == "ERROR":
                _raise_for(item.get("code"), str(item.get("message", "")))
            if event.get("type") in ("ADDED", "MODIFIED"):
                self._sink.put(item)
            elif event.get("type") == "DELETED":
                self._sink.drop(item)
            version = item["metadata"].get("resourceVersion")
            self._version = version if isinstance(version, str) and version else self._version

    async def _get(self, query: dict[str, str]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
        async with self._session.get(
            self._path,
            params=query | self._selector,
            headers=self._access.headers(),
            timeout=timeout,
        ) as response:
            body = await response.read()
            _check(response.status)
            self._heard()
            return msgspec.json.decode(body, type=dict[str, Any])

    async def _events(self) -> AsyncIterator[dict[str, Any]]:
        query = self._selector | {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(sock_connect=_REQUEST_S, sock_read=WATCH_S + _GRACE_S)
        async with self._session.get(
            self._path, params=query, headers=self._access.headers(), timeout=timeout
        ) as response:
            _check(response.status)
            pending = b""
            async for chunk in response.content.iter_any():
                self._heard()
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield msgspec.json.decode(line, type=dict[str, Any])

    def _report(self, error: Exception, failures: int) -> None:
        """Log the first failure in a row as a warning, the others at debug level."""
        level = logging.DEBUG if failures else logging.WARNING
        reason = f"{type(error).__name__}: {error}"
        log.log(level, "API server away", extra=fields(path=self._path, reason=reason))


def _object_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event's object. A watch that sends something else has lost its way: list again.

    Raises:
        ExpiredError: it has no object.

    """
    item = event.get("object")
    if not isinstance(item, dict):
        raise ExpiredError
    if event.get("type") != "ERROR" and not isinstance(item.get("metadata"), dict):
        raise ExpiredError
    return item


def _check(status: int) -> None:
    if status != 200:
        _raise_for(status, "")


def _raise_for(code: object, message: str) -> None:
    if code == 410:
        raise ExpiredError
    raise aiohttp.ClientPayloadError(f"the API server answered {code} {message}".strip())


def _pause_s(failures: int) -> float:
    least, most = _BACKOFF_S
    full = min(most, least * 2.0 ** min(failures, 16))
    return full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
