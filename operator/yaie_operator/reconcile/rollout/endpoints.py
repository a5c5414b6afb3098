"""Which pods a Service leads to, from its EndpointSlices. Pure.

Pods may be ready although nobody reaches them: with another selector or port the Service leads
nowhere. Routers and clients know the slices only, so the status is read from them, too.
"""

from collections.abc import Iterable

from yaie_operator.cluster import Object


def ready_pods(slices: Iterable[Object]) -> frozenset[str]:
    """Names of the pods (of an endpoint without a pod: addresses) that take new connections."""
    return frozenset(
        _name(endpoint)
        for one in slices
        for endpoint in one.get("endpoints") or ()
        if _is_ready(endpoint)
    )


def _name(endpoint: Object) -> str:
    return str((endpoint.get("targetRef") or {}).get("name") or endpoint["addresses"][0])


def _is_ready(endpoint: Object) -> bool:
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")
