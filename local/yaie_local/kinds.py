"""The resource types that the local API server stores, found by manifest or by URL path."""

from dataclasses import dataclass
from typing import Final

from yaie_operator.cluster import Kind, Object, RefusedError
from yaie_operator.watch import kinds


@dataclass(frozen=True)
class Resource:
    """A resource type. `has_status`: the status is a subresource, written separately."""

    kind: Kind
    has_status: bool = False
    has_scale: bool = False

    @property
    def group_version(self) -> str:
        return self.kind.api_version


def _resource(api_version: str, kind: str, plural: str, **flags: bool) -> Resource:
    return Resource(Kind(api_version, kind, plural), **flags)


MODELS: Final = Resource(kinds.INFERENCE_MODEL, has_status=True, has_scale=True)
PODS: Final = Resource(kinds.POD, has_status=True)
SERVICES: Final = Resource(kinds.SERVICE, has_status=True)
SECRETS: Final = Resource(kinds.SECRET)
CONFIG_MAPS: Final = Resource(kinds.CONFIG_MAP)
CLAIMS: Final = Resource(kinds.CLAIM, has_status=True)
JOBS: Final = Resource(kinds.JOB, has_status=True)
EVENTS: Final = _resource("v1", "Event", "events")
DEPLOYMENTS: Final = Resource(kinds.DEPLOYMENT, has_status=True, has_scale=True)
ENDPOINT_SLICES: Final = Resource(kinds.ENDPOINT_SLICE)

STORED_ONLY: Final = (
    Resource(kinds.SERVICE_ACCOUNT),
    _resource("rbac.authorization.k8s.io/v1", "Role", "roles"),
    Resource(kinds.ROLE_BINDING),
    _resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    _resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    _resource("coordination.k8s.io/v1", "Lease", "leases"),
)
"""Types that are stored, listed and garbage-collected, but that no controller here acts on."""

ALL: Final = (
    MODELS, PODS, SERVICES, SECRETS, CONFIG_MAPS, CLAIMS, EVENTS, DEPLOYMENTS, JOBS,
    ENDPOINT_SLICES,
    *STORED_ONLY,
)  # fmt: skip

_BY_KIND: Final = {(r.kind.api_version, r.kind.kind): r for r in ALL}
_BY_PATH: Final = {(r.kind.api_version, r.kind.plural): r for r in ALL}


def of_object(obj: Object) -> Resource:
    """The resource type that a manifest names.

    Raises:
        RefusedError: the manifest names no type, or one that is not stored here.

    """
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise RefusedError("an object needs apiVersion and kind")
    return of_kind(api_version, kind)


def of_kind(api_version: str, kind: str) -> Resource:
    """The resource type of an apiVersion and a kind.

    Raises:
        RefusedError: this type is not stored here.

    """
    found = _BY_KIND.get((api_version, kind))
    if found is None:
        known = ", ".join(sorted(r.kind.kind for r in ALL))
        raise RefusedError(
            f'no matches for kind "{kind}" in version "{api_version}" on this machine; '
            f"it knows: {known}"
        )
    return found


def of_path(api_version: str, plural: str) -> Resource | None:
    """The resource type of a URL path, or None."""
    return _BY_PATH.get((api_version, plural))
