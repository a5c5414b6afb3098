"""The API server's operations: get, create, apply, patch, scale and delete, with admission.

`cluster` (for the operator) and `api` (for router pods and the command line) call them. They raise
the errors of `yaie_operator.cluster`: ConflictError, NotFoundError, RefusedError.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from yaie_local import kinds
from yaie_local.apiserver import managed_fields
from yaie_local.apiserver.admission import Admission
from yaie_local.apiserver.store import Store
from yaie_local.objects import (
    Ref,
    is_terminating,
    ref,
    timestamp,
    uid_of,
    with_metadata,
)
from yaie_operator.cluster import ConflictError, NotFoundError, Object, RefusedError

DEFAULT_GRACE_S = 30


class Verbs:
    """The write side of the local API server."""

    def __init__(
        self, store: Store, admission: Admission, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self._admission = admission
        self._clock = clock

    def get(self, target: Ref) -> Object:
        """The stored object.

        Raises:
            NotFoundError: it does not exist.

        """
        found = self.store.get(target)
        if found is None:
            raise NotFoundError(f'{target.kind} "{target.name}" not found')
        return found

    def create(self, obj: Object, *, manager: str) -> Object:
        resource = kinds.of_object(obj)
        bare = _without_status(obj) if resource.has_status else obj
        admitted = self._admission.admit(bare, None)
        return self.store.create(managed_fields.record_update(None, admitted, manager=manager))

    def apply(self, applied: Object, *, manager: str, force: bool, dry_run: bool = False) -> Object:
        """Server-side apply: create or merge, with ownership of fields. `dry_run` stores nothing.

        Raises:
            ConflictError: the object has a uid but no longer exists, or its uid or resourceVersion
                is outdated, or another manager owns a field (unless `force`).

        """
        resource = kinds.of_object(applied)
        wanted = _without_status(applied) if resource.has_status else applied
        _check_shape(wanted)
        live = self.store.get(ref(wanted))
        if live is None:
            if wanted["metadata"].get("uid") is not None:
                raise ConflictError(f'{wanted["kind"]} "{wanted["metadata"]["name"]}" is gone')
            empty = {k: wanted[k] for k in ("apiVersion", "kind")} | {"metadata": {}}
            fresh = managed_fields.apply(empty, wanted, manager=manager, force=force)
            admitted = self._admission.admit(fresh, None)
            return admitted if dry_run else self.store.create(admitted)
        _check_identity(live, wanted)
        merged = managed_fields.apply(live, wanted, manager=manager, force=force)
        admitted = self._admission.admit(merged, live)
        return admitted if dry_run else self.store.update(admitted)

    def replace(self, obj: Object, *, manager: str) -> Object:
        """Update a whole object except its status.

        Raises:
            NotFoundError: it does not exist.
            ConflictError: its uid or resourceVersion is outdated.

        """
        live = self.get(ref(obj))
        _check_identity(live, obj)
        status = {"status": live["status"]} if "status" in live else {}
        managed = {"managedFields": live["metadata"].get("managedFields")}
        kept = ("uid", "creationTimestamp", "generation", "resourceVersion")
        own = {key: live["metadata"][key] for key in kept if key in live["metadata"]}
        new = {**_without_status(obj), "metadata": {**obj["metadata"], **own, **managed}, **status}
        admitted = self._admission.admit(new, live)
        return self.store.update(managed_fields.record_update(live, admitted, manager=manager))

    def merge_patch(self, target: Ref, patch: Mapping[str, Any], *, manager: str) -> Object:
        """RFC 7386 merge patch of all fields but the status.

        Raises:
            RefusedError: the patch would change apiVersion, kind, namespace or name.

        """
        live = self.get(target)
        resource = kinds.of_object(live)
        change = {k: v for k, v in patch.items() if not (resource.has_status and k == "status")}
        new = merged(live, change)
        if ref(new) != target:
            raise RefusedError("apiVersion, kind, namespace and name of an object cannot change")
        _check_identity(live, new)
        admitted = self._admission.admit(new, live)
        return self.store.update(managed_fields.record_update(live, admitted, manager=manager))

    def patch_status(self, observed: Object, status: Object) -> Object:
        """Replace the status of the observed object and nothing else."""
        live = self.store.expect(observed)
        return self.store.update(self._admission.admit({**live, "status": dict(status)}, live))

    def set_scale(self, target: Ref, replicas: int, *, manager: str) -> Object:
        """Write `spec.replicas` through the scale subresource."""
        return self.merge_patch(target, {"spec": {"replicas": replicas}}, manager=manager)

    def delete(self, observed: Object, *, grace_s: int | None = None) -> None:
        """Delete an object. A pod is marked as terminating; the kubelet ends and removes it."""
        live = self.store.expect(observed)
        if kinds.of_object(live) is not kinds.PODS:
            self.store.delete(live)
        elif not is_terminating(live) or grace_s == 0:
            self._mark_pod(live, grace_s)

    def _mark_pod(self, pod: Object, grace_s: int | None) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        grace = own if grace_s is None else grace_s
        stamp = timestamp(self._clock())
        marked = with_metadata(pod, deletionTimestamp=stamp, deletionGracePeriodSeconds=grace)
        self.store.update(marked)


def merged(value: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(value) if isinstance(value, Mapping) else {}
    for key, item in patch.items():
        if item is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), item)
    return base


def _check_shape(obj: Object) -> None:
    if not isinstance(obj.get("metadata"), Mapping) or not obj["metadata"].get("name"):
        raise RefusedError("metadata.name: Required value: name or generateName is required")


def _check_identity(live: Object, new: Object) -> None:
    """Raise ConflictError if `new` has a uid or resourceVersion other than the live object's."""
    meta = new["metadata"]
    if meta.get("uid") not in (None, uid_of(live)):
        raise ConflictError(f'{live["kind"]} "{live["metadata"]["name"]}" was replaced: other uid')
    if meta.get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
        raise ConflictError(
            f'{live["kind"]} "{live["metadata"]["name"]}" changed since it was read; read it again'
        )


def _without_status(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key != "status"}
