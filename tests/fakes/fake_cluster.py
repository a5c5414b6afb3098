"""A cluster in memory for tests of the operator: uids, resourceVersions, generations, ownership.

It keeps what server-side apply promises to the operator (guards, no-op applies change nothing) and
leaves out what only an API server does. `writes` lists every call that changed or tried to change
something.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal

from yaie_api import names
from yaie_operator.cluster import (
    ConflictError,
    Kind,
    NotFoundError,
    Object,
    RefusedError,
    UnreachableError,
    WatchEvent,
    replacement,
)
from yaie_operator.reconcile.observe import Ref

SERVER_DEFAULTS: dict[str, dict[str, Any]] = {
    "Service": {"sessionAffinity": "None", "ipFamilyPolicy": "SingleStack"},
    "Deployment": {"minReadySeconds": 0},
}


class FakeCluster:
    def __init__(self) -> None:
        self.objects: dict[Ref, dict[str, Any]] = {}
        self.writes: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.refuse: dict[str, str] = {}
        self.refuse_deletes = ""
        self.refuse_verbs: dict[str, str] = {}
        self.is_away = False
        self.changes: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._version = 0

    # What tests do to the cluster.

    def put(self, obj: Object) -> dict[str, Any]:
        """Create or replace an object as somebody else would."""
        stored = copy.deepcopy(dict(obj))
        known = self.objects.get(Ref.of(stored))
        metadata = stored["metadata"]
        metadata.setdefault("namespace", "ns")
        metadata["uid"] = known["metadata"]["uid"] if known else self._uid()
        generation = known["metadata"]["generation"] if known else 0
        changed = known is None or known.get("spec") != stored.get("spec")
        metadata["generation"] = generation + changed
        return self._store(stored, "MODIFIED" if known else "ADDED")

    def remove(self, ref: Ref) -> None:
        """Delete an object and, as the garbage collector would, what nobody else owns."""
        gone = self.objects.pop(ref)
        self.changes.put_nowait(WatchEvent("DELETED", gone))
        uids = {obj["metadata"]["uid"] for obj in self.objects.values()}
        for other in list(self.objects):
            obj = self.objects.get(other)
            owners = obj["metadata"].get("ownerReferences", ()) if obj else ()
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.remove(other)

    def set_status(self, ref: Ref, status: Mapping[str, Any]) -> None:
        self._store({**self.objects[ref], "status": dict(status)}, "MODIFIED")

    def make_ready(self, ref: Ref) -> None:
        """Play the Deployment controller and the nodes: every replica runs and answers."""
        self.set_status(ref, ready_status(self.objects[ref]))
        self.put(endpoints_of(self.objects[ref]))

    # The port.

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self._reach()
        wanted = dict(labels or {}).items()
        return [
            copy.deepcopy(obj)
            for ref, obj in self.objects.items()
            if ref.kind == kind.kind
            and namespace in {None, ref.namespace}
            and wanted <= obj["metadata"].get("labels", {}).items()
        ]

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        self._reach()
        return copy.deepcopy(self.objects.get(Ref(kind.kind, namespace, name)))

    async def watch(self) -> AsyncIterator[WatchEvent]:
        while True:
            yield copy.deepcopy(await self.changes.get())

    async def apply(self, manifest: Object, *, observed: Object | None) -> Object:
        ref = Ref.of(manifest)
        self._write("apply", ref)
        known = self.objects.get(ref)
        self._guard(known, observed)
        new = copy.deepcopy(dict(manifest))
        if known is None:
            new["metadata"] |= {"uid": self._uid(), "generation": 1}
            if ref.kind in SERVER_DEFAULTS:
                new["spec"] |= SERVER_DEFAULTS[ref.kind]
            return copy.deepcopy(self._store(new, "ADDED"))
        merged = _merged(known, new)
        if merged == known:
            return copy.deepcopy(known)
        changed = merged.get("spec") != known.get("spec")
        merged["metadata"]["generation"] = known["metadata"]["generation"] + changed
        return copy.deepcopy(self._store(merged, "MODIFIED"))

    async def replace(self, manifest: Object, *, observed: Object) -> Object:
        ref = Ref.of(manifest)
        self._write("replace", ref)
        known = self.objects.get(ref)
        self._guard(known, observed)
        assert known is not None
        new = copy.deepcopy(dict(replacement(manifest, observed)))
        new["metadata"]["generation"] = known["metadata"]["generation"] + 1
        if ref.kind in SERVER_DEFAULTS:
            new["spec"] |= SERVER_DEFAULTS[ref.kind]
        return copy.deepcopy(self._store({**new, "status": known.get("status", {})}, "MODIFIED"))

    async def delete(self, observed: Object) -> None:
        ref = Ref.of(observed)
        self._write("delete", ref)
        self._guard(self.objects.get(ref), observed)
        self.remove(ref)

    async def patch_status(self, observed: Object, status: Object) -> Object:
        ref = Ref.of(observed)
        self._write("status", ref)
        known = self.objects.get(ref)
        self._guard(known, observed)
        assert known is not None
        stored = self._store({**known, "status": copy.deepcopy(dict(status))}, "MODIFIED")
        return copy.deepcopy(stored)

    async def set_pod_condition(self, observed: Object, condition: Mapping[str, Any]) -> Object:
        ref = Ref.of(observed)
        self._write("condition", ref)
        known = self.objects.get(ref)
        if known is None or known["metadata"]["uid"] != observed["metadata"]["uid"]:
            raise NotFoundError("gone")
        status = known.get("status", {})
        others = [c for c in status.get("conditions", ()) if c["type"] != condition["type"]]
        changed = {**known, "status": {**status, "conditions": [*others, dict(condition)]}}
        return copy.deepcopy(self._store(changed, "MODIFIED"))

    async def set_scale(self, observed: Object, replicas: int) -> int:
        ref = Ref.of(observed)
        self._write("scale", ref)
        known = self.objects.get(ref)
        self._guard(known, observed)
        assert known is not None
        metadata = {**known["metadata"], "generation": known["metadata"]["generation"] + 1}
        spec = {**known["spec"], "replicas": replicas}
        stored = self._store({**known, "metadata": metadata, "spec": spec}, "MODIFIED")
        return int(stored["metadata"]["resourceVersion"])

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self._write("event", Ref.of(about))
        self.events.append((severity, reason, message))

    # Insides.

    def _reach(self) -> None:
        if self.is_away:
            raise UnreachableError("away")

    def _write(self, verb: str, ref: Ref) -> None:
        self._reach()
        self.writes.append((verb, f"{ref.kind}/{ref.name}"))
        if ref.kind in self.refuse and verb == "apply":
            raise RefusedError(self.refuse[ref.kind])
        if self.refuse_deletes and verb == "delete":
            raise RefusedError(self.refuse_deletes)
        if verb in self.refuse_verbs:
            raise RefusedError(self.refuse_verbs[verb])

    def _guard(self, known: Object | None, observed: Object | None) -> None:
        if observed is None and known is not None:
            raise ConflictError("exists")
        if observed is not None and known is None:
            raise NotFoundError("gone")
        if observed is not None and known is not None:
            keys = ("uid", "resourceVersion")
            if any(known["metadata"][k] != observed["metadata"][k] for k in keys):
                raise ConflictError("changed")

    def _store(self, obj: dict[str, Any], change: Literal["ADDED", "MODIFIED"]) -> dict[str, Any]:
        self._version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self.objects[Ref.of(stored)] = stored
        self.changes.put_nowait(WatchEvent(change, copy.deepcopy(stored)))
        return stored

    def _uid(self) -> str:
        self._version += 1
        return f"uid-{self._version}"


def _merged(known: Any, new: Any) -> Any:
    """Fields of `new` over those of `known`; maps merge, the rest is replaced."""
    if isinstance(known, Mapping) and isinstance(new, Mapping):
        return {**known, **{k: _merged(known.get(k), v) for k, v in new.items()}}
    return new


def ready_status(deployment: Object) -> dict[str, Any]:
    """Status of a Deployment whose every replica runs and answers."""
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    generation = deployment["metadata"]["generation"]
    replicas = dict.fromkeys(counts, deployment["spec"]["replicas"])
    return {"observedGeneration": generation, **replicas}


def endpoints_of(deployment: Object) -> dict[str, Any]:
    """The EndpointSlice of the Service that has a Deployment's name; every replica is ready."""
    name, labels = deployment["metadata"]["name"], deployment["metadata"].get("labels", {})
    replicas = range(deployment["spec"]["replicas"])
    return endpoint_slice(name, (f"{name}-{number}" for number in replicas), labels)


def endpoint_slice(
    service: str, pods: Iterable[str], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An EndpointSlice that leads to these pods, ready."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-1",
            "namespace": "ns",
            "labels": {
                **(labels or {names.LABEL_MANAGED_BY: names.MANAGED_BY}),
                names.LABEL_SERVICE_NAME: service,
            },
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.0.0.{number}"], "targetRef": {"kind": "Pod", "name": pod}}
            for number, pod in enumerate(pods, 1)
        ],
    }


def inference_model(name: str = "demo", **spec: Any) -> dict[str, Any]:
    model = {"source": "builtin://yaie-demo", **spec.pop("model", {})}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"model": model, **spec},
    }
