"""Every pod of the chart and the operator has the least it needs, and goes where it is sent."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from charts.restricted import violations
from cluster.control_plane import ControlPlane, KubectlError
from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import ROUTER_LIMITS
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects, router_objects
from yaie_router import config as router_config
from yaie_router.config import Config

pytestmark = pytest.mark.cluster
Render = Callable[..., list[dict[str, Any]]]
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
PLACED = (
    'commonLabels={"team": "ml"}',
    'images.pullSecrets=[{"name": "one"}, {"name": "two"}]',
    *(
        f"{who}={json.dumps(fields)}"
        for who in ("operator", "router")
        for fields in [
            {
                "replicas": 2,
                "podLabels": {"cost": who},
                "podAnnotations": {"note": who},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "edge", "operator": "Exists"}],
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "labelSelector": {"matchLabels": {"app": "noisy"}},
                                "topologyKey": "kubernetes.io/hostname",
                            }
                        ]
                    }
                },
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
                "priorityClassName": "high",
                "resources": RESOURCES,
            }
        ]
    ),
)


def config_of(objects: list[dict[str, Any]]) -> OperatorConfig:
    """What the operator makes of the environment that the chart gives it."""
    env = operator_pod(objects)["containers"][0]["env"]
    return OperatorConfig.from_env({one["name"]: one.get("value") or "" for one in env})


def operator_template(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == "Deployment")
    template: dict[str, Any] = found["spec"]["template"]
    return template


def operator_pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = operator_template(objects)["spec"]
    return spec


def children(config: OperatorConfig, **spec: Any) -> list[dict[str, Any]]:
    """Everything that the operator writes for one model."""
    obj = inference_model(**spec)
    obj["metadata"]["uid"] = "u"
    model = ServedModel.parse(obj)
    shared = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    return [dict(one) for one in (*shared, *model_objects(model, config, deployment=None))]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specs of all pods that come of these objects."""
    for obj in objects:
        whose = f"{obj['kind']}/{obj['metadata']['name']}"
        if obj["kind"] == "Pod":
            yield whose, obj["spec"]
        elif obj["kind"] in {"Deployment", "Job"}:
            yield whose, obj["spec"]["template"]["spec"]


def every_pod(render: Render, *settings: str) -> dict[str, dict[str, Any]]:
    chart = render(*settings, tests=True)
    gpu = {"resources": {"gpu": {"count": 1}}, "model": {"source": "pvc://weights/a"}}
    config = config_of(chart)
    return dict(pods([*chart, *children(config), *children(config, name="other", **gpu)]))


def test_every_pod_meets_the_restricted_standard(render: Render) -> None:
    found = every_pod(render, *PLACED)
    assert {"Deployment/yaie-operator", "Pod/yaie-test", "Deployment/yaie-router"} < found.keys()
    assert {whose: broken for whose, pod in found.items() if (broken := violations(pod))} == {}
    for whose, pod in found.items():
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, whose


def test_the_rules_find_what_they_should() -> None:
    good = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    tight = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "c", "securityContext": tight}
    assert violations({"securityContext": good, "containers": [container]}) == []
    for change in (
        {"hostNetwork": True},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"securityContext": {**good, "runAsNonRoot": False}},
        {"securityContext": {"runAsNonRoot": True}},
        {"initContainers": [{"name": "i"}]},
        {"containers": [{**container, "ports": [{"hostPort": 80}]}]},
        {"containers": [{"name": "c", "securityContext": {**tight, "privileged": True}}]},
    ):
        assert violations({"securityContext": good, "containers": [container]} | change), change


def test_an_api_server_that_enforces_the_standard_admits_every_pod(
    render: Render, control_plane: ControlPlane
) -> None:
    kubectl = control_plane.kubectl
    namespace = control_plane.new_namespace("restricted")
    kubectl("label", "ns", namespace, "pod-security.kubernetes.io/enforce=restricted")

    def admit(name: str, spec: dict[str, Any]) -> None:
        free = {key: value for key, value in spec.items() if key != "priorityClassName"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**free, "serviceAccountName": "default"},
        }
        kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    for number, spec in enumerate(every_pod(render, *PLACED).values()):
        admit(f"pod-{number}", spec)
    with pytest.raises(KubectlError, match="restricted"):
        admit("root", {"containers": [{"name": "c", "image": "i"}]})
    kubectl("delete", "ns", namespace, "--wait=false")


def test_settings_of_pods_reach_the_operator_and_through_it_the_routers(render: Render) -> None:
    objects = render(*PLACED)
    made = {"operator": operator_template(objects)}
    (made["router"],) = (
        one["spec"]["template"]
        for one in children(config_of(objects))
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "yaie-router")
    )
    for who, template in made.items():
        spec = template["spec"]
        assert template["metadata"]["labels"]["cost"] == who
        assert template["metadata"]["annotations"]["note"] == who
        assert spec["nodeSelector"] == {"disk": "ssd"}
        assert spec["tolerations"] == [{"key": "edge", "operator": "Exists"}]
        assert spec["affinity"]["podAntiAffinity"]
        assert spec["priorityClassName"] == "high"
        (container,) = spec["containers"]
        assert container["resources"] == RESOURCES
        (constraint,) = spec["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "zone"
        chosen = constraint["labelSelector"]["matchLabels"]
        assert chosen.items() <= template["metadata"]["labels"].items()


def test_the_secrets_of_a_private_registry_are_on_every_pod(render: Render) -> None:
    for whose, pod in every_pod(render, *PLACED).items():
        assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}], whose


def test_every_object_has_the_common_labels(render: Render) -> None:
    for obj in render(*PLACED, tests=True):
        if obj["kind"] != "CustomResourceDefinition":
            assert obj["metadata"]["labels"]["team"] == "ml", obj["metadata"]["name"]


def router_of(*settings: str, render: Render) -> tuple[Config, dict[str, Any]]:
    """What a router makes of the command line that the operator gives it, and its pod."""
    objects = children(config_of(render(*settings)))
    (made,) = (
        one
        for one in objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] == names.ROUTER
    )
    pod = made["spec"]["template"]["spec"]
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    return router_config.parse(pod["containers"][0]["args"], env), pod


def limits_of(config: Config) -> dict[str, float]:
    """The router's settings that ROUTER_LIMITS names, by the chart's names."""
    flags = {name: flag.removeprefix("--") for name, (flag, _) in ROUTER_LIMITS.items()}
    return {name: getattr(config, flag.replace("-", "_")) for name, flag in flags.items()}


def test_the_charts_limits_of_routers_are_the_routers_own(render: Render) -> None:
    config, pod = router_of(render=render)
    assert limits_of(config) == limits_of(Config())
    assert pod["terminationGracePeriodSeconds"] > config.drain_delay_s + config.drain_timeout_s


def test_every_limit_of_the_values_reaches_the_router(render: Render) -> None:
    wanted = {name: 7 + index for index, name in enumerate(ROUTER_LIMITS)}
    config, pod = router_of(
        *(f"router.{name}={value}" for name, value in wanted.items()), render=render
    )
    assert limits_of(config) == wanted
    short = 5 + config.drain_delay_s + wanted["drainTimeoutSeconds"]
    assert short < pod["terminationGracePeriodSeconds"] < short + 60
