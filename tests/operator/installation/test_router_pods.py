"""Settings of the installation arrive in the pods, and never weaken them."""

from typing import Any

from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import PodSettings
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects, router_objects
from yaie_operator.resources.router import SELECTOR

EVERYTHING = PodSettings.parse(
    {
        "labels": {"team": "ml"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "high",
        "resources": {"limits": {"memory": "1Gi"}},
    }
)


def template(config: OperatorConfig) -> dict[str, Any]:
    objects = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    found: dict[str, Any] = objects[-1]["spec"]["template"]
    return found


def test_every_setting_of_router_pods_arrives() -> None:
    made = template(OperatorConfig(router_pod=EVERYTHING))
    spec = made["spec"]
    assert made["metadata"]["labels"]["team"] == "ml"
    assert made["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["tolerations"] == [{"key": "edge", "operator": "Exists"}]
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["priorityClassName"] == "high"
    assert spec["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    (constraint,) = spec["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "zone"
    assert constraint["labelSelector"] == {"matchLabels": SELECTOR}


def test_several_routers_are_spread_over_nodes_and_one_needs_no_rule() -> None:
    (constraint,) = template(OperatorConfig(router_replicas=2))["spec"]["topologySpreadConstraints"]
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert "topologySpreadConstraints" not in template(OperatorConfig())["spec"]


def test_a_budget_lets_one_router_go_at_a_time_and_a_broken_one_always() -> None:
    config = OperatorConfig(router_replicas=3)
    objects = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    (budget,) = (obj for obj in objects if obj["kind"] == "PodDisruptionBudget")
    assert budget["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def test_every_pod_is_pulled_with_the_secrets_of_the_registry() -> None:
    config = OperatorConfig(image_pull_secrets=("one", "two"))
    obj = inference_model()
    obj["metadata"]["uid"] = "u"
    (*_, engine) = model_objects(ServedModel.parse(obj), config, deployment=None)
    for pod in (template(config)["spec"], engine["spec"]["template"]["spec"]):
        assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert "imagePullSecrets" not in template(OperatorConfig())["spec"]
