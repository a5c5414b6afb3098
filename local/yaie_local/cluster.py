"""Adapter of the operator's port `yaie_operator.cluster.Cluster` to the local store."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal

from yaie_api import names
from yaie_local import kinds
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.apiserver.store import ExpiredError
from yaie_local.objects import Ref, labels_of, name_of, ref, seconds_of, timestamp, uid_of
from yaie_operator.cluster import (
    ConflictError,
    Kind,
    NotFoundError,
    Object,
    WatchEvent,
    replacement,
)

EVENT_TTL_S: Final = 3600.0


class LocalCluster:
    """Implements `yaie_operator.cluster.Cluster`. No call waits, so none can time out."""

    def __init__(self, verbs: Verbs, *, clock: Callable[[], float] = time.time) -> None:
        self._verbs = verbs
        self._store = verbs.store
        self._clock = clock

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> "list[Object]":
        return self._store.list(kind, namespace=namespace, labels=labels)

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        return self._store.get(Ref(kind.api_version, kind.kind, namespace, name))

    async def watch(self) -> AsyncIterator[WatchEvent]:
        """New changes of InferenceModels and of objects that carry the operator's label."""
        version = self._store.version
        while True:
            try:
                async for event in self._store.follow(version):
                    version = event.version
                    if _is_ours(event.change.object):
                        yield event.change
            except ExpiredError:
                version = self._store.version

    async def apply(self, manifest: Object, *, observed: Object | None) -> Object:
        """Apply the manifest as the operator, if the live object is still the `observed` one.

        Raises:
            ConflictError: the live object changed, or it exists although `observed` is None.

        """
        live = self._store.get(ref(manifest))
        if observed is None and live is not None:
            raise ConflictError(f'{manifest["kind"]} "{name_of(manifest)}" already exists')
        guarded = manifest
        if observed is not None:
            seen = observed["metadata"]
            guard = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
            guarded = {**manifest, "metadata": {**manifest["metadata"], **guard}}
        return self._verbs.apply(guarded, manager=names.FIELD_MANAGER, force=True)

    async def replace(self, manifest: Object, *, observed: Object) -> Object:
        body = replacement(manifest, observed)
        return self._verbs.replace(body, manager=names.FIELD_MANAGER)

    async def delete(self, observed: Object) -> None:
        self._verbs.delete(observed)

    async def patch_status(self, observed: Object, status: Object) -> Object:
        return self._verbs.patch_status(observed, status)

    async def set_pod_condition(self, observed: Object, condition: Mapping[str, Any]) -> Object:
        """Set one condition of a pod.

        Raises:
            NotFoundError: the pod, or one with its uid, does not exist.

        """
        live = self._verbs.get(ref(observed))
        if uid_of(live) != uid_of(observed):
            raise NotFoundError(f'pod "{name_of(observed)}" was replaced')
        status = live.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != condition["type"]]
        return self._verbs.patch_status(live, {**status, "conditions": [*others, condition]})

    async def set_scale(self, observed: Object, replicas: int) -> int:
        version = observed["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        manager = names.FIELD_MANAGER_AUTOSCALER
        scaled = self._verbs.merge_patch(ref(observed), patch, manager=manager)
        return int(scaled["metadata"]["resourceVersion"])

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event; a repeated event increments the count of the existing one."""
        self._forget_old_events()
        event = self._event(about, severity, reason, message)
        old = self._store.get(ref(event))
        if old is None:
            self._verbs.create(event, manager=names.FIELD_MANAGER)
            return
        again = {"count": old["count"] + 1, "lastTimestamp": timestamp(self._clock())}
        self._verbs.merge_patch(ref(event), again, manager=names.FIELD_MANAGER)

    def _event(self, about: Object, severity: str, reason: str, message: str) -> dict[str, Any]:
        meta, now = about["metadata"], timestamp(self._clock())
        same = hashlib.sha256(f"{meta['uid']}\n{reason}\n{message}".encode()).hexdigest()[:16]
        return {
            "apiVersion": kinds.EVENTS.kind.api_version,
            "kind": kinds.EVENTS.kind.kind,
            "metadata": {"name": f"{meta['name']}.{same}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "type": severity,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": names.FIELD_MANAGER},
        }

    def _forget_old_events(self) -> None:
        oldest = self._clock() - EVENT_TTL_S
        for event in self._store.list(kinds.EVENTS.kind):
            if seconds_of(event["lastTimestamp"]) < oldest:
                self._store.delete(event)


def _is_ours(obj: Object) -> bool:
    if kinds.of_object(obj) is kinds.MODELS:
        return True
    return labels_of(obj).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
