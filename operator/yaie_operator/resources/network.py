"""The NetworkPolicies of a namespace: who may connect to its routers, engines and downloads, and
where downloads may connect to.

An engine takes connections from the routers of its namespace and from those whom the administrator
names (the operator and Prometheus, which read its metrics), so that no request goes round the
router. A router has its metrics on a port of their own, for the same readers. A download is asked
by them how far it is. The kubelet's probes pass every policy.

Connections from routers and engines are not ours to decide. Those of a download are what it is for:
where somebody denies a namespace all of them, its policy still lets it reach the hub.
"""

from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.installation import Json, NetworkSettings
from yaie_operator.resources.shared import labels, manifest

_HTTP: Final = {"ports": [{"port": names.HTTP_PORT, "protocol": "TCP"}]}
_ROUTER_METRICS: Final = {"ports": [{"port": names.ROUTER_METRICS_PORT, "protocol": "TCP"}]}
_DNS: Final = {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]}


def network_policies(namespace: str, settings: NetworkSettings) -> tuple[Object, Object, Object]:
    """The policies of the routers, of the engines and of the downloads."""
    routers = {"podSelector": {"matchLabels": {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}}}
    readers = [*settings.engine_clients]
    outgoing = [_DNS, *settings.download_egress] if settings.download_egress else [{}]
    return (
        _policy(namespace, names.ROUTER, names.COMPONENT_ROUTER, _of_routers(settings)),
        _policy(
            namespace,
            names.ENGINES,
            names.COMPONENT_ENGINE,
            [_HTTP | {"from": [routers, *readers]}],
        ),
        _policy(
            namespace,
            names.WEIGHTS,
            names.COMPONENT_WEIGHTS,
            [_HTTP | ({"from": readers} if readers else {})],
            egress=outgoing,
        ),
    )


def _of_routers(settings: NetworkSettings) -> list[Json]:
    """Who may connect to a router. In a rule, nobody named means everyone."""
    clients = {"from": [*settings.router_clients]} if settings.router_clients else {}
    rules: list[Json] = [_HTTP | clients]
    if settings.engine_clients:
        rules.append(_ROUTER_METRICS | {"from": [*settings.engine_clients]})
    return rules


def _policy(
    namespace: str,
    name: str,
    component: str,
    rules: list[Json],
    *,
    egress: list[Any] | None = None,
) -> Object:
    """A policy of the pods of a component. `egress`: None leaves what they reach alone."""
    outgoing = {} if egress is None else {"egress": egress}
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name=name,
        namespace=namespace,
        labels=labels(component),
        spec={
            "podSelector": {"matchLabels": {names.LABEL_COMPONENT: component}},
            "policyTypes": ["Ingress", *(["Egress"] if outgoing else [])],
            "ingress": rules,
            **outgoing,
        },
    )
