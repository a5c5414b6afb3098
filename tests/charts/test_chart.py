"""The chart renders what it documents, refuses what it does not know, and asks for least rights."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from yaie_operator.config import OperatorConfig

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "yaie"
Render = Callable[..., list[dict[str, Any]]]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def test_lint_finds_nothing(programs: Path) -> None:
    command = [programs / "helm", "lint", "--strict", CHART]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_generated_file_is_current(programs: Path) -> None:
    command = [sys.executable, ROOT / "tools" / "render_manifests.py", "--check"]
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run `make manifests`"


def test_the_default_installs_the_type_the_operator_and_its_rights(render: Render) -> None:
    objects = render()
    names = sorted(f"{each['kind']}/{each['metadata']['name']}" for each in objects)
    assert names == [
        "ClusterRole/yaie-edit",
        "ClusterRole/yaie-operator",
        "ClusterRole/yaie-router",
        "ClusterRole/yaie-view",
        "ClusterRoleBinding/yaie-operator",
        "CustomResourceDefinition/inferencemodels.yaie.dev",
        "Deployment/yaie-operator",
        "NetworkPolicy/yaie-operator",
        "Role/yaie-operator-lease",
        "RoleBinding/yaie-operator-lease",
        "ServiceAccount/yaie-operator",
    ]


def test_the_type_survives_an_uninstall(render: Render) -> None:
    (crd,) = of_kind(render(), "CustomResourceDefinition")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_type_can_be_left_out(render: Render) -> None:
    assert not of_kind(render("crds.install=false"), "CustomResourceDefinition")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("operater={}", "operater"),
        ("router.replicas=0", "minimum"),
        (
            'httpRoute={"hosts": [{"namespace": "chat", "hostnames": ["a.b"]}]}',
            "set httpRoute.parentRefs",
        ),
    ],
)
def test_helm_refuses_a_wrong_value(render: Render, setting: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        render(setting)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"images": {"engine": {"name": "x"}}}, "images/engine"),
        ({"images": {"controlPlane": {"digest": "latest"}}}, "images/controlPlane/digest"),
        ({"images": {"pullSecrets": ["regcred"]}}, "images/pullSecrets/0"),
        ({"namespaces": ["Upper"]}, "namespaces/0"),
        ({"operator": {"affinity": {"nodeAffinty": {}}}}, "operator/affinity"),
        ({"operator": {"resources": {"requests": {"cpu": "lots"}}}}, "requests/cpu"),
        ({"operator": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "operator/podLabels"),
        ({"router": {"tolerations": [{"key": "a", "op": "Exists"}]}}, "router/tolerations/0"),
        ({"router": {"podLabels": {"yaie.dev/model": "x"}}}, "router/podLabels"),
        ({"router": {"auth": {"existingSecret": "Keys"}}}, "router/auth/existingSecret"),
        ({"router": {"auth": {"keys": []}}}, "router/auth"),
        ({"router": {"tls": {"existingSecret": "Pair"}}}, "router/tls/existingSecret"),
        ({"networkPolicies": {"prometheus": [{}]}}, "networkPolicies/prometheus/0"),
        ({"networkPolicies": {"clients": [{"pods": {}}]}}, "networkPolicies/clients/0"),
        ({"ingress": {"hosts": [{"namespace": "chat"}]}}, "ingress/hosts/0"),
        ({"ingress": {"paths": ["v1"]}}, "ingress/paths/0"),
        ({"httpRoute": {"hosts": [{"namespace": "a", "hostnames": []}]}}, "hosts/0/hostnames"),
        ({"monitoring": {"alerts": True}}, "monitoring"),
        ({"monitoring": {"podMonitors": {"interval": 15}}}, "podMonitors/interval"),
        ({"monitoring": {"rules": {"runbooks": "a b"}}}, "rules/runbooks"),
    ],
)
def test_the_schema_refuses_what_nobody_reads(values: dict[str, Any], place: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema_rs.ValidationError) as refused:
        jsonschema_rs.validate(schema, values)
    assert "/".join(map(str, refused.value.instance_path)).endswith(place)


def test_every_value_has_a_default_a_comment_and_a_schema_that_refuses_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def walk(part: dict[str, Any], value: dict[str, Any]) -> None:
        assert set(part["properties"]) - {"global"} == set(value)
        for name, child in part["properties"].items():
            assert child["description"].endswith("."), name
            if "properties" in child:
                walk(child, value[name])

    walk(schema, values)


def test_no_level_of_the_schema_lets_an_unknown_name_through() -> None:
    def closed(node: Any, path: str) -> None:
        if isinstance(node, list):
            for each in node:
                closed(each, path)
        if not isinstance(node, dict):
            return
        if node.get("type") == "object" and path != "/properties/global":
            assert "additionalProperties" in node, path
            assert node["additionalProperties"] is not True, path
        for key, each in node.items():
            closed(each, f"{path}/{key}")

    closed(json.loads((CHART / "values.schema.json").read_text()), "")


def test_image_names_follow_registry_tag_and_digest(render: Render) -> None:
    digest = "sha256:" + "a" * 64
    objects = render(
        'images.registry="r.example/team/"',
        'images.controlPlane.tag="v9"',
        f'images.engine.digest="{digest}"',
    )
    (container,) = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert container["image"] == "r.example/team/yaie/control-plane:v9"
    assert env["YAIE_ROUTER_IMAGE"] == container["image"]
    assert env["YAIE_ENGINE_IMAGE"] == f"r.example/team/yaie/engine@{digest}"


def test_allowed_origins_reach_the_operator(render: Render) -> None:
    objects = render('router.allowedOrigins=["https://a.example","http://localhost:3000"]')
    (container,) = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    config = OperatorConfig.from_env({name: value for name, value in env.items() if value})
    assert config.router_allowed_origins == ("https://a.example", "http://localhost:3000")


def test_where_traces_go_reaches_the_operator(render: Render) -> None:
    objects = render('tracing.endpoint="http://collector:4318"', "tracing.samplingRatio=0.25")
    (container,) = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    config = OperatorConfig.from_env({name: value for name, value in env.items() if value})
    assert config.tracing_endpoint == "http://collector:4318"
    assert config.tracing_sampling_ratio == 0.25


def test_two_operators_get_a_disruption_budget_and_are_spread(render: Render) -> None:
    objects = render("operator.replicas=2")
    assert len(of_kind(objects, "PodDisruptionBudget")) == 1
    (deployment,) = of_kind(objects, "Deployment")
    assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]


def test_named_namespaces_get_bindings_and_the_cluster_gets_none(render: Render) -> None:
    objects = render('namespaces=["chat","research"]')
    assert not of_kind(objects, "ClusterRoleBinding")
    bound = [each for each in of_kind(objects, "RoleBinding") if "lease" not in str(each)]
    assert [each["metadata"]["namespace"] for each in bound] == ["chat", "research"]


def test_no_right_is_wider_than_needed(render: Render) -> None:
    for role in [*of_kind(render(), "ClusterRole"), *of_kind(render(), "Role")]:
        for rule in role["rules"]:
            granted = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not granted & {"*", "escalate", "impersonate", "pods/exec"}
            if {"secrets", "clusterroles"} & set(rule["resources"]):
                assert rule["resourceNames"], "these are readable or bindable by name only"


def test_the_versions_agree() -> None:
    from yaie_api import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


MONITORING = (
    "monitoring.podMonitors.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboards.enabled=true",
)


def test_monitoring_installs_monitors_rules_and_dashboards(render: Render) -> None:
    assert sorted(_names(render(*MONITORING)) - _names(render())) == [
        "ConfigMap/yaie-engine-dashboard",
        "ConfigMap/yaie-fleet-dashboard",
        "ConfigMap/yaie-model-dashboard",
        "ConfigMap/yaie-operator-dashboard",
        "PodMonitor/yaie-engines",
        "PodMonitor/yaie-operator",
        "PodMonitor/yaie-routers",
        "PrometheusRule/yaie",
    ]


def _names(objects: list[dict[str, Any]]) -> set[str]:
    return {f"{each['kind']}/{each['metadata']['name']}" for each in objects}


def test_the_rules_arrive_as_they_are_but_for_the_runbooks_address(render: Render) -> None:
    (found,) = of_kind(
        render(*MONITORING, 'monitoring.rules.runbooks="https://example.org/r/"'), "PrometheusRule"
    )
    text = (CHART / "files" / "rules.yaml").read_text()
    moved = text.replace("runbook_url: docs/runbooks", "runbook_url: https://example.org/r")
    assert found["spec"] == yaml.safe_load(moved)


def test_the_dashboards_arrive_as_they_are(render: Render) -> None:
    found = of_kind(render(*MONITORING, 'monitoring.dashboards.namespace="grafana"'), "ConfigMap")
    for each in found:
        assert each["metadata"]["namespace"] == "grafana"
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = each["data"].items()
        assert json.loads(text) == json.loads((CHART / "files" / "dashboards" / name).read_text())


def test_monitors_choose_what_the_operator_and_the_chart_create(render: Render) -> None:
    """By the labels and the ports of the pods."""
    from yaie_api import names
    from yaie_operator.resources.shared import labels

    objects = render(*MONITORING, 'namespaces=["chat"]')
    monitors = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "PodMonitor")}
    (operator,) = of_kind(objects, "Deployment")
    pod = operator["spec"]["template"]
    engine = labels(names.COMPONENT_ENGINE, "demo")
    router = labels(names.COMPONENT_ROUTER)
    for name, found in (
        ("yaie-engines", engine),
        ("yaie-routers", router),
        ("yaie-operator", pod["metadata"]["labels"]),
    ):
        wanted = monitors[name]["selector"]["matchLabels"]
        assert wanted.items() <= found.items()
        others = [other for other in (engine, router) if other is not found]
        assert not any(wanted.items() <= other.items() for other in others)
    assert monitors["yaie-engines"]["namespaceSelector"] == {"matchNames": ["chat"]}
    (endpoint,) = monitors["yaie-engines"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (names.HTTP_PORT_NAME, names.PATH_METRICS)
    (of_router,) = monitors["yaie-routers"]["podMetricsEndpoints"]
    assert of_router["port"] == names.METRICS_PORT_NAME
    label = "__meta_kubernetes_pod_label_" + names.LABEL_MODEL.translate({46: "_", 47: "_"})
    assert {"sourceLabels": [label], "targetLabel": "model"} in endpoint["relabelings"]
    (container,) = pod["spec"]["containers"]
    (endpoint,) = monitors["yaie-operator"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]


def test_a_certificate_reaches_the_operator_the_ingress_and_the_test(
    render: Render,
) -> None:
    hosts = 'ingress.hosts=[{"namespace": "chat", "host": "chat.example"}]'
    objects = render('router.tls.existingSecret="yaie-tls"', hosts, tests=True)
    text = json.dumps(objects)
    assert '{"name": "YAIE_ROUTER_TLS_SECRET", "value": "yaie-tls"}' in text
    (ingress,) = (one for one in objects if one["kind"] == "Ingress")
    ports = {
        path["backend"]["service"]["port"]["name"]
        for path in ingress["spec"]["rules"][0]["http"]["paths"]
    }
    assert ports == {"https"}
    (test,) = (
        one
        for one in objects
        if one["metadata"]["name"] == "yaie-test" and "containers" in one["spec"]
    )
    assert "https://yaie-router.yaie-system.svc:8000/v1" in test["spec"]["containers"][0]["args"]
    items = [
        one["secret"]["items"][0]["key"]
        for one in test["spec"]["volumes"][0]["projected"]["sources"]
    ]
    assert items == ["tls.crt", "ca.crt"]  # and never the key
    assert "https" not in json.dumps([one for one in render(hosts) if one["kind"] == "Ingress"])
