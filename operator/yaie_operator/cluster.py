"""The interface (port) between the reconcilers and a cluster.

Its adapters are `yaie_operator.watch.kube` (a real API server) and `yaie_local.cluster` (objects
and processes on this machine); one set of tests runs on both. Objects are JSON mappings in the
Kubernetes API's form. Callers must not mutate the objects that they receive.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Object = Mapping[str, Any]
"""A Kubernetes object as JSON."""


def label(obj: Object, name: str) -> str:
    """A label's value, "" if the label is absent."""
    return str(obj["metadata"].get("labels", {}).get(name, ""))


@dataclass(frozen=True)
class Kind:
    """A resource type, e.g. Kind("apps/v1", "Deployment", "deployments")."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True)
class WatchEvent:
    """One watch event."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object


class ConflictError(Exception):
    """The object changed since it was observed (409); observe again and retry."""


class NotFoundError(Exception):
    """The object does not exist (404)."""


class RefusedError(Exception):
    """The API server refused the object (422/400/403); the message is for the user."""


class UnreachableError(Exception):
    """The API server did not answer in time; nothing is known about the write."""


class Cluster(Protocol):
    """The cluster operations that the operator uses. Every call has its own timeout.

    Raises:
        ConflictError: the object changed since it was observed.
        NotFoundError: the object does not exist.
        RefusedError: the API server refused the object.
        UnreachableError: the API server did not answer in time.

    """

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """All objects of a kind. `namespace=None`: in all namespaces that the operator watches."""
        ...

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        """The live object of this name, whoever owns it; None if the name is free."""
        ...

    def watch(self) -> AsyncIterator[WatchEvent]:
        """Changes of InferenceModels and of the objects that carry the operator's label.

        Events only trigger a reconcile: they may be lost or repeated. `list` is authoritative.
        """
        ...

    async def apply(self, manifest: Object, *, observed: Object | None) -> Object:
        """Forced server-side apply as `names.FIELD_MANAGER`; returns the stored object.

        `observed` is the live object as last seen: its uid and resourceVersion make the write fail
        if the object changed since. None: it must not exist; the write fails if an object has its
        name, whoever owns it.
        """
        ...

    async def replace(self, manifest: Object, *, observed: Object) -> Object:
        """Replace everything but metadata by the manifest's; returns the stored object.

        Fields that others have added go, which an apply would keep. Labels and annotations of
        others stay. Guarded as `apply` is.
        """
        ...

    async def delete(self, observed: Object) -> None:
        """Delete exactly the observed object (uid and resourceVersion preconditions)."""
        ...

    async def patch_status(self, observed: Object, status: Object) -> Object:
        """Replace the status subresource of the observed InferenceModel; returns the object."""
        ...

    async def set_pod_condition(self, observed: Object, condition: Mapping[str, Any]) -> Object:
        """Set one condition of the observed pod's status; returns the pod. Other conditions stay,
        which the kubelet may change meanwhile; a pod of the same name that has replaced it is not
        written.
        """
        ...

    async def set_scale(self, observed: Object, replicas: int) -> int:
        """Write spec.replicas of an InferenceModel through its scale subresource.

        Guarded by the observed resourceVersion. Returns the new resourceVersion.
        """
        ...

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record a Kubernetes Event about an object."""
        ...


def replacement(manifest: Object, observed: Object) -> Object:
    """The object that `Cluster.replace` stores: the manifest, with the identity, labels,
    annotations and finalizers of the observed object.
    """
    live, ours = observed["metadata"], manifest["metadata"]
    both = {key: {**live.get(key, {}), **ours.get(key, {})} for key in ("labels", "annotations")}
    kept = {key: live[key] for key in ("uid", "resourceVersion", "finalizers") if key in live}
    return {**manifest, "metadata": {**ours, **both, **kept}}
