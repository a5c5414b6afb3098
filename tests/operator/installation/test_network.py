"""The policies let in whom they should, judged by what a NetworkPolicy means."""

from collections.abc import Mapping
from typing import Any

import pytest

from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import NetworkSettings
from yaie_operator.model import ServedModel
from yaie_operator.resources.network import network_policies
from yaie_operator.resources.shared import labels
from yaie_operator.resources.weights import job


def served() -> ServedModel:
    obj = inference_model(model={"source": "hf://org/tiny"}, cache={"mode": "pvc", "size": "1Gi"})
    obj["metadata"]["uid"] = "u"
    return ServedModel.parse(obj)


OPERATOR = {"app.kubernetes.io/name": "yaie", "app.kubernetes.io/component": "operator"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
ROUTER = labels(names.COMPONENT_ROUTER)
ENGINE = labels(names.COMPONENT_ENGINE, "demo")
DOWNLOAD = job(served(), OperatorConfig(), "key")["spec"]["template"]["metadata"]["labels"]
CLIENTS = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "yaie-system"}},
        "podSelector": {"matchLabels": OPERATOR},
    },
    {"namespaceSelector": {}, "podSelector": {"matchLabels": PROMETHEUS}},
]


def policies(**settings: Any) -> tuple[Object, Object, Object]:
    both = {"engineClients": CLIENTS, **settings}
    return network_policies("chat", NetworkSettings.parse(both))


def lets_in(
    policy: Object, *, namespace: str, pod: Mapping[str, str], port: int = names.HTTP_PORT
) -> bool:
    """Whether a pod may connect to a port of the pods that the policy is about."""
    return any(
        {"port": port, "protocol": "TCP"} in rule["ports"]
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
    routers, engines, _ = policies()
    assert lets_in(engines, namespace=namespace, pod=pod) is to_engine, who
    assert lets_in(routers, namespace=namespace, pod=pod), who


def test_routers_accept_named_clients_and_the_readers_of_metrics() -> None:
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}
    routers, _, _ = policies(routerClients=[gateway])
    assert lets_in(routers, namespace="gateway", pod={"app": "nginx"})
    assert not lets_in(routers, namespace="chat", pod={"app": "web"})
    for namespace, pod in (("monitoring", PROMETHEUS), ("yaie-system", OPERATOR)):
        assert lets_in(routers, namespace=namespace, pod=pod, port=names.ROUTER_METRICS_PORT)
        assert not lets_in(routers, namespace=namespace, pod=pod)
    for policy in (routers, policies()[0]):
        assert not lets_in(
            policy, namespace="gateway", pod={"app": "nginx"}, port=names.ROUTER_METRICS_PORT
        )


def test_each_policy_is_about_its_own_pods_and_the_outgoing_connections_of_downloads_alone() -> (
    None
):
    pods = (ROUTER, ENGINE, DOWNLOAD)
    types = (["Ingress"], ["Ingress"], ["Ingress", "Egress"])
    for policy, ours, restricted in zip(policies(), pods, types, strict=True):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert [pod for pod in pods if selector.items() <= pod.items()] == [ours]
        assert policy["spec"]["policyTypes"] == restricted


def test_a_download_answers_the_operator_and_reaches_every_hub_where_all_else_is_denied() -> None:
    """Policies add up: one rule without peers and ports lets everything out."""
    _, _, downloads = policies()
    assert lets_in(downloads, namespace="yaie-system", pod=OPERATOR)
    assert not lets_in(downloads, namespace="chat", pod={"app": "web"})
    assert downloads["spec"]["egress"] == [{}]


def test_named_egress_of_downloads_stands_beside_names() -> None:
    storage = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "minio"}}}],
        "ports": [{"port": 9000}],
    }
    _, _, downloads = policies(downloadEgress=[{"ports": [{"port": 443}]}, storage])
    dns, *named = downloads["spec"]["egress"]
    assert {(one["port"], one["protocol"]) for one in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert named == [{"ports": [{"port": 443}]}, storage]
