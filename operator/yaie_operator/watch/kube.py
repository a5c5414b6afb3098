"""Adapter of the `Cluster` port to a real API server."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from yaie_api import names
from yaie_operator.cluster import Kind, NotFoundError, Object, WatchEvent, replacement
from yaie_operator.watch.kinds import BY_NAME, INFERENCE_MODEL, ONLY_NAMES
from yaie_operator.watch.kube_api import KubeApi, Request
from yaie_operator.watch.slim import slim

APPLY: Final = "application/apply-patch+yaml"
MERGE_PATCH: Final = "application/merge-patch+json"
PAGE: Final = "500"
BATCH: Final = 64
"""Changes that are handed on in one turn of the event loop."""


class ChangeQueue:
    """Passes changes from the watching thread to the event loop that reconciles. The loop is woken
    once for all that come before it looks: a wake is a system call in each of the two threads.
    """

    def __init__(self) -> None:
        self._changes: deque[WatchEvent] = deque()
        self._arrived = asyncio.Event()
        self._is_woken = False
        self._loop = asyncio.get_running_loop()

    def push(self, change: WatchEvent) -> None:
        """Queue a change. Thread-safe; after the loop is closed, changes are dropped."""
        self._changes.append(change)  # before the flag is read, which is lowered before a look
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def changes(self) -> AsyncIterator[WatchEvent]:
        """Each change, in order. Between `BATCH` changes the event loop gets a turn: a list tells
        of a thousand objects at once.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._is_woken = False
            while self._changes:
                for _ in range(min(BATCH, len(self._changes))):
                    yield self._changes.popleft()
                await asyncio.sleep(0)


class KubeCluster:
    """Implements `cluster.Cluster`. `namespaces`: those listed if a call names none; (): all."""

    def __init__(
        self, api: KubeApi, feed: ChangeQueue, *, namespaces: tuple[str, ...] = ()
    ) -> None:
        self._api = api
        self._feed = feed
        self._namespaces = namespaces

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        places: Sequence[str | None] = self._namespaces or (None,)
        if namespace is not None:
            places = (namespace,)
        return [obj for place in places for obj in await self._pages(kind, place, labels or {})]

    async def _pages(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str]
    ) -> Sequence[Object]:
        query = [("limit", PAGE)]
        if labels:
            query.append(("labelSelector", ",".join(f"{k}={v}" for k, v in labels.items())))
        if only := ONLY_NAMES.get(kind):
            query.append(("fieldSelector", f"metadata.name={only}"))
        found: Sequence[Object] = ()
        token = ""
        while True:
            page = [*query, ("continue", token)] if token else query
            answer = await self._api.send(
                Request("GET", path_of(kind, namespace=namespace), tuple(page))
            )
            # The items of a list have no apiVersion and kind.
            typed = {"apiVersion": kind.api_version, "kind": kind.kind}
            found = (*found, *(slim({**item, **typed}) for item in answer["items"]))
            token = answer["metadata"].get("continue", "")
            if not token:
                return found

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        try:
            found: Object = await self._api.send(
                Request("GET", path_of(kind, namespace=namespace, name=name))
            )
        except NotFoundError:
            return None
        return found

    def watch(self) -> AsyncIterator[WatchEvent]:
        return self._feed.changes()

    async def apply(self, manifest: Object, *, observed: Object | None) -> Object:
        """As in `Cluster`. A new object is applied with a resourceVersion that no object has: the
        API server ignores it where it creates, and answers 409 if an object of this name exists.
        """
        query = (
            ("fieldManager", names.FIELD_MANAGER),
            ("force", str(observed is not None).lower()),
        )
        body = _new(manifest) if observed is None else _guarded(manifest, observed)
        applied: Object = await self._api.send(
            Request("PATCH", _path_to(manifest), query, body, APPLY)
        )
        return applied

    async def replace(self, manifest: Object, *, observed: Object) -> Object:
        query = (("fieldManager", names.FIELD_MANAGER),)
        body = replacement(manifest, observed)
        replaced: Object = await self._api.send(Request("PUT", _path_to(manifest), query, body))
        return replaced

    async def delete(self, observed: Object) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": _identity(observed),
        }
        await self._api.send(Request("DELETE", _path_to(observed), body=body))

    async def patch_status(self, observed: Object, status: Object) -> Object:
        metadata = observed["metadata"]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]}
            | _identity(observed),
            "status": status,
        }
        query = (("fieldManager", names.FIELD_MANAGER), ("force", "true"))
        path = f"{_path_to(observed)}/status"
        patched: Object = await self._api.send(Request("PATCH", path, query, body, APPLY))
        return patched

    async def set_pod_condition(self, observed: Object, condition: Mapping[str, Any]) -> Object:
        metadata = observed["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": {"conditions": [condition]},
        }
        query = (("fieldManager", names.FIELD_MANAGER), ("force", "true"))
        path = f"{_path_to(observed)}/status"
        patched: Object = await self._api.send(Request("PATCH", path, query, body, APPLY))
        return patched

    async def set_scale(self, observed: Object, replicas: int) -> int:
        version = observed["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        query = (("fieldManager", names.FIELD_MANAGER_AUTOSCALER),)
        path = f"{_path_to(observed)}/scale"
        scale: Object = await self._api.send(Request("PATCH", path, query, body, MERGE_PATCH))
        return int(scale["metadata"]["resourceVersion"])

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        namespace = about["metadata"]["namespace"]
        event = _event(about, severity, reason, message)
        await self._api.send(Request("POST", f"/api/v1/namespaces/{namespace}/events", body=event))


async def serves_models(api: KubeApi) -> bool:
    """Whether discovery lists InferenceModels.

    Raises:
        RefusedError: the API server refuses the request.
        UnreachableError: the API server does not answer.

    """
    try:
        answer = await api.send(Request("GET", f"/apis/{names.API_VERSION}"))
    except NotFoundError:
        return False
    return any(resource["name"] == INFERENCE_MODEL.plural for resource in answer["resources"])


def path_of(kind: Kind, *, namespace: str | None = None, name: str | None = None) -> str:
    """REST path of a kind, of a kind in a namespace, or of one object."""
    root = "/api/v1" if kind.api_version == "v1" else f"/apis/{kind.api_version}"
    place = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{root}{place}/{kind.plural}" + (f"/{name}" if name is not None else "")


def _path_to(obj: Object) -> str:
    metadata = obj["metadata"]
    kind = BY_NAME[obj["kind"]]
    return path_of(kind, namespace=metadata["namespace"], name=metadata["name"])


def _identity(observed: Object) -> dict[str, str]:
    """The metadata with which the API server answers 409 if the object has changed."""
    metadata = observed["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def _new(manifest: Object) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "1"}}


def _guarded(manifest: Object, observed: Object) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], **_identity(observed)}}


def _event(about: Object, severity: str, reason: str, message: str) -> dict[str, Any]:
    metadata = about["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": severity,
        "reason": reason,
        "message": message[:1024],
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
