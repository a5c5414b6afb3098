"""The NetworkPolicies of a namespace: who may connect to its routers and to its engines.

Only incoming connections are restricted. An engine takes them from the routers of its namespace and
from those whom the administrator names (the operator and Prometheus, which read its metrics), so
that no request goes round the router. The kubelet's probes pass every policy.
"""

from typing import Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.installation import Json, NetworkSettings
from yaie_operator.resources.shared import labels, manifest

_PORTS: Final = [{"port": names.HTTP_PORT, "protocol": "TCP"}]


def network_policies(namespace: str, settings: NetworkSettings) -> tuple[Object, Object]:
    """The policy of the routers, and the one of the engines."""
    routers = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    return (
        _policy(namespace, names.ROUTER, names.COMPONENT_ROUTER, _router_clients(settings)),
        _policy(
            namespace,
            names.ENGINES,
            names.COMPONENT_ENGINE,
            [{"podSelector": {"matchLabels": routers}}, *settings.engine_clients],
        ),
    )


def _router_clients(settings: NetworkSettings) -> list[Json]:
    """Who may connect to a router; []: everyone."""
    if not settings.router_clients:
        return []
    return [*settings.router_clients, *settings.engine_clients]


def _policy(namespace: str, name: str, component: str, clients: list[Json]) -> Object:
    rule = {"ports": _PORTS} | ({"from": clients} if clients else {})
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name=name,
        namespace=namespace,
        labels=labels(component),
        spec={
            "podSelector": {"matchLabels": {names.LABEL_COMPONENT: component}},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    )
