"""The local adapter as a double of a cluster: its store and verbs, no controllers, no processes.

It has the test side of `fake_cluster.FakeCluster`, so that the same tests run on both.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fakes.fake_cluster import endpoints_of, ready_status
from yaie_api.resource import crd
from yaie_local.apiserver import managed_fields
from yaie_local.apiserver.admission import Admission
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.apiserver.journal import Journal
from yaie_local.apiserver.store import Store
from yaie_local.cluster import LocalCluster
from yaie_local.controllers.gc import orphans
from yaie_operator.cluster import Kind, Object
from yaie_operator.reconcile.observe import Ref
from yaie_operator.watch import kinds

ALL = (kinds.INFERENCE_MODEL, *kinds.WATCHED)


class LocalDouble:
    def __init__(self, folder: Path) -> None:
        self.writes: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self._admission = Admission(crd.render(local=True))
        self._store = Store(Journal(folder / "objects.jsonl"))
        self._cluster = LocalCluster(Verbs(self._store, self._admission))

    def close(self) -> None:
        self._store.close()

    @property
    def objects(self) -> dict[Ref, Any]:
        return {Ref.of(obj): obj for kind in ALL for obj in self._store.list(kind)}

    def put(self, obj: Object) -> Object:
        """Create or replace an object as somebody else would."""
        live = self.objects.get(Ref.of(obj))
        admitted = self._admission.admit(obj, live)
        recorded = managed_fields.record_update(live, admitted, manager="somebody")
        return self._store.create(recorded) if live is None else self._store.update(recorded)

    def remove(self, ref: Ref) -> None:
        """Delete an object and what nobody else owns."""
        self._store.delete(self.objects[ref])
        while gone := orphans(self.objects.values()):
            for obj in gone:
                self._store.delete(obj)

    def set_status(self, ref: Ref, status: Mapping[str, Any]) -> None:
        self._store.update({**self.objects[ref], "status": dict(status)})

    def make_ready(self, ref: Ref) -> None:
        self.set_status(ref, ready_status(self.objects[ref]))
        self.put(endpoints_of(self.objects[ref]))

    # The port.

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> "list[Object]":
        return await self._cluster.list(kind, namespace=namespace, labels=labels)

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(await self._cluster.get(kind, namespace=namespace, name=name))

    async def apply(self, manifest: Object, *, observed: Object | None) -> Object:
        self._note("apply", manifest)
        return await self._cluster.apply(manifest, observed=observed)

    async def replace(self, manifest: Object, *, observed: Object) -> Object:
        self._note("replace", manifest)
        return await self._cluster.replace(manifest, observed=observed)

    async def delete(self, observed: Object) -> None:
        self._note("delete", observed)
        await self._cluster.delete(observed)

    async def patch_status(self, observed: Object, status: Object) -> Object:
        self._note("status", observed)
        return await self._cluster.patch_status(observed, status)

    async def set_pod_condition(self, observed: Object, condition: Mapping[str, Any]) -> Object:
        self._note("condition", observed)
        return await self._cluster.set_pod_condition(observed, condition)

    async def set_scale(self, observed: Object, replicas: int) -> int:
        self._note("scale", observed)
        return await self._cluster.set_scale(observed, replicas)

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self._note("event", about)
        self.events.append((severity, reason, message))
        await self._cluster.emit(about, severity=severity, reason=reason, message=message)

    def _note(self, verb: str, obj: Object) -> None:
        self.writes.append((verb, f"{obj['kind']}/{obj['metadata']['name']}"))
