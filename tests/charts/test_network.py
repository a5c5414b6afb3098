"""Who may connect to what, and how the world reaches a router."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from charts.test_pods import children, config_of
from yaie_api import names

pytestmark = pytest.mark.cluster
Render = Callable[..., list[dict[str, Any]]]
PROMETHEUS = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def test_the_operators_metrics_are_for_prometheus(render: Render) -> None:
    objects = render()
    spec = of_kind(objects, "NetworkPolicy")["yaie-operator"]["spec"]
    (rule,) = spec["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": PROMETHEUS}]
    template = of_kind(objects, "Deployment")["yaie-operator"]["spec"]["template"]
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    assert rule["ports"] == [{"port": ports[0], "protocol": "TCP"}]
    nobody = of_kind(render("networkPolicies.prometheus=[]"), "NetworkPolicy")
    assert nobody["yaie-operator"]["spec"]["ingress"] == []


def test_the_operators_policies_let_the_operator_itself_in(render: Render) -> None:
    """By the labels that the chart gives its pods, in the namespace that it is in."""
    objects = render()
    operator = of_kind(objects, "Deployment")["yaie-operator"]["spec"]["template"]["metadata"]
    engines = of_kind(children(config_of(objects)), "NetworkPolicy")[names.ENGINES]
    (rule,) = engines["spec"]["ingress"]
    routers, itself, prometheus = rule["from"]
    assert routers["podSelector"]["matchLabels"] == {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    assert itself["podSelector"]["matchLabels"].items() <= operator["labels"].items()
    assert itself["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "yaie-system"
    }
    assert prometheus["podSelector"] == PROMETHEUS


def test_named_clients_do_not_lock_the_test_out(render: Render) -> None:
    objects = render('networkPolicies.clients=[{"namespaceSelector": {}}]', tests=True)
    routers = of_kind(children(config_of(objects)), "NetworkPolicy")[names.ROUTER]
    rule, metrics = routers["spec"]["ingress"]
    assert [peer["podSelector"] for peer in metrics["from"]][1:] == [PROMETHEUS]
    pod = of_kind(objects, "Pod")["yaie-test"]["metadata"]
    assert any(
        peer.get("podSelector", {}).get("matchLabels", {"": ""}).items() <= pod["labels"].items()
        and peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        == pod["namespace"]
        for peer in rule["from"]
    )


def test_downloads_reach_what_the_values_name(render: Render) -> None:
    def egress(*settings: str) -> list[dict[str, Any]]:
        policies = of_kind(children(config_of(render(*settings))), "NetworkPolicy")
        found: list[dict[str, Any]] = policies[names.WEIGHTS]["spec"]["egress"]
        return found

    assert egress() == [{}]
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 9000}]}
    assert egress(f"networkPolicies.downloads={json.dumps([rule])}")[1:] == [rule]
    with pytest.raises(ValueError, match="portz"):
        render('networkPolicies.downloads=[{"portz": []}]')


def test_policies_can_be_switched_off(render: Render) -> None:
    objects = render("networkPolicies.enabled=false")
    assert not of_kind(objects, "NetworkPolicy")
    assert config_of(objects).network is None
    assert not of_kind(children(config_of(objects)), "NetworkPolicy")


CHAT = {"namespace": "chat", "host": "chat.example.com", "tlsSecret": "chat-tls"}
LAB = {
    "namespace": "lab",
    "host": "lab.example.com",
    "className": "other",
    "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "1m"},
}
INGRESS = (
    f"ingress.hosts={json.dumps([CHAT, LAB])}",
    'ingress.className="nginx"',
)


def test_each_named_host_gets_an_ingress_that_streams(render: Render) -> None:
    chat, lab = (one for one in render(*INGRESS) if one["kind"] == "Ingress")
    assert chat["metadata"]["namespace"] == "chat"
    assert chat["spec"]["ingressClassName"] == "nginx"
    assert chat["spec"]["tls"] == [{"hosts": ["chat.example.com"], "secretName": "chat-tls"}]
    prefix = "nginx.ingress.kubernetes.io/"
    assert chat["metadata"]["annotations"] == {
        f"{prefix}proxy-buffering": "off",
        f"{prefix}proxy-read-timeout": "3600",
        f"{prefix}proxy-send-timeout": "3600",
        f"{prefix}proxy-body-size": "8m",
    }
    (rule,) = chat["spec"]["rules"]
    assert rule["host"] == "chat.example.com"
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/v1", "Prefix")
    assert lab["spec"]["ingressClassName"] == "other"
    assert "tls" not in lab["spec"]
    assert lab["metadata"]["annotations"][f"{prefix}proxy-body-size"] == "1m"
    assert lab["metadata"]["annotations"][f"{prefix}proxy-buffering"] == "off"


def test_two_hosts_of_one_namespace_do_not_take_each_others_place(render: Render) -> None:
    hosts = [{"namespace": "chat", "host": host} for host in ("a.example.com", "*.example.com")]
    made = of_kind(render(f"ingress.hosts={json.dumps(hosts)}"), "Ingress")
    assert set(made) == {"yaie-router-a-example-com", "yaie-router-any-example-com"}


@pytest.mark.parametrize("settings", [INGRESS, 'test.namespace="chat"'], ids=["ingress", "test"])
def test_a_namespace_that_nobody_serves_is_not_published(
    render: Render, settings: str | tuple[str, ...]
) -> None:
    words = (settings,) if isinstance(settings, str) else settings
    with pytest.raises(ValueError, match="names the namespace chat, which the operator does not"):
        render('namespaces=["research"]', *words)


def test_ingresses_lead_to_the_service_that_the_operator_makes(render: Render) -> None:
    objects = render(*INGRESS)
    (chat, _) = (one for one in objects if one["kind"] == "Ingress")
    backend = chat["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = of_kind(children(config_of(objects)), "Service")[backend["name"]]
    assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]


def test_a_body_that_a_router_takes_passes_the_ingress(render: Render) -> None:
    from yaie_router.config import Config

    (chat, _) = (one for one in render(*INGRESS) if one["kind"] == "Ingress")
    size = chat["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert int(size.removesuffix("m")) << 20 == Config.max_body_bytes


def test_metrics_are_not_published_and_the_page_only_where_it_is_asked_for(render: Render) -> None:
    from yaie_router import routes

    def published(*settings: str) -> set[str]:
        (chat, _) = (one for one in render(*INGRESS, *settings) if one["kind"] == "Ingress")
        return {path["path"] for path in chat["spec"]["rules"][0]["http"]["paths"]}

    assert published() == {"/v1"}
    assert published("ingress.page=true") == {"/v1", *routes.PAGES, routes.OPENAPI}
    assert not any(own.startswith("/v1") for own in routes.OWN)


ROUTE = (
    'httpRoute.hosts=[{"namespace":"chat","hostnames":["chat.example.com"]}]',
    'httpRoute.parentRefs=[{"name":"public","namespace":"gateways"}]',
    "httpRoute.page=true",
)


def test_a_route_joins_the_gateway_and_sets_streams_no_limit(render: Render) -> None:
    objects = render(*ROUTE)
    route = of_kind(objects, "HTTPRoute")["yaie-router-chat-example-com"]
    assert route["metadata"]["namespace"] == "chat"
    assert route["spec"]["parentRefs"] == [{"name": "public", "namespace": "gateways"}]
    assert route["spec"]["hostnames"] == ["chat.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    assert [match["path"]["value"] for match in rule["matches"]] == [
        "/v1", "/", "/docs", "/openapi.json",
    ]  # fmt: skip
    (backend,) = rule["backendRefs"]
    service = of_kind(children(config_of(objects)), "Service")[backend["name"]]
    assert backend["port"] in [port["port"] for port in service["spec"]["ports"]]
