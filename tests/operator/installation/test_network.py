"""The policies let in whom they should, judged by what a NetworkPolicy means."""

from collections.abc import Mapping
from typing import Any

import pytest

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.installation import NetworkSettings
from yaie_operator.resources.network import network_policies
from yaie_operator.resources.shared import labels

OPERATOR = {"app.kubernetes.io/name": "yaie", "app.kubernetes.io/component": "operator"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
ROUTER = labels(names.COMPONENT_ROUTER)
ENGINE = labels(names.COMPONENT_ENGINE, "demo")
CLIENTS = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "yaie-system"}},
        "podSelector": {"matchLabels": OPERATOR},
    },
    {"namespaceSelector": {}, "podSelector": {"matchLabels": PROMETHEUS}},
]


def policies(**settings: Any) -> tuple[Object, Object]:
    both = {"engineClients": CLIENTS, **settings}
    return network_policies("chat", NetworkSettings.parse(both))


def lets_in(policy: Object, *, namespace: str, pod: Mapping[str, str]) -> bool:
    """Whether a pod may connect to port 8000 of the pods that the policy is about."""
    return any(
        {"port": 8000, "protocol": "TCP"} in rule["ports"]
        and ("from" not in rule or any(_is(peer, namespace, pod) for peer in rule["from"]))
        for rule in policy["spec"]["ingress"]
    )


def _is(peer: Mapping[str, Any], namespace: str, pod: Mapping[str, str]) -> bool:
    place = peer.get("namespaceSelector")
    wanted = {} if place is None else place.get("matchLabels", {})
    here = namespace == "chat" if place is None else wanted.items() <= {
        "kubernetes.io/metadata.name": namespace
    }.items()  # fmt: skip
    return here and peer.get("podSelector", {}).get("matchLabels", {}).items() <= pod.items()


@pytest.mark.parametrize(
    ("who", "namespace", "pod", "to_engine"),
    [
        ("the router of the namespace", "chat", ROUTER, True),
        ("a router of another namespace", "research", ROUTER, False),
        ("the operator", "yaie-system", OPERATOR, True),
        ("a pod that calls itself the operator", "chat", OPERATOR, False),
        ("Prometheus", "monitoring", PROMETHEUS, True),
        ("any pod of the namespace", "chat", {"app": "web"}, False),
        ("another engine", "chat", ENGINE, False),
    ],
)
def test_engines_accept_routers_the_operator_and_prometheus_alone(
    who: str, namespace: str, pod: dict[str, str], *, to_engine: bool
) -> None:
    routers, engines = policies()
    assert lets_in(engines, namespace=namespace, pod=pod) is to_engine, who
    assert lets_in(routers, namespace=namespace, pod=pod), who


def test_routers_accept_named_clients_and_the_readers_of_metrics() -> None:
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}
    routers, _ = policies(routerClients=[gateway])
    assert lets_in(routers, namespace="gateway", pod={"app": "nginx"})
    assert lets_in(routers, namespace="monitoring", pod=PROMETHEUS)
    assert lets_in(routers, namespace="yaie-system", pod=OPERATOR)
    assert not lets_in(routers, namespace="chat", pod={"app": "web"})


def test_each_policy_is_about_its_own_pods_and_leaves_their_outgoing_connections_alone() -> None:
    for policy, ours, others in zip(policies(), (ROUTER, ENGINE), (ENGINE, ROUTER), strict=True):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert selector.items() <= ours.items()
        assert not selector.items() <= others.items()
        assert policy["spec"]["policyTypes"] == ["Ingress"]
