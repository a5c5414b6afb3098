"""What `spec.podTemplate` adds to an engine's pod, and what it cannot change."""

from typing import Any

import pytest

from api.field_values import POD
from fakes.fake_cluster import inference_model
from yaie_api.resource import pod_template
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects
from yaie_operator.resources.engine import hash_of, selector
from yaie_operator.resources.overlay import TemplateTooLargeError
from yaie_operator.resources.weights import job

CONFIG = OperatorConfig(engine_image="engine:1")


def model(**spec: Any) -> ServedModel:
    obj = inference_model(**spec)
    obj["metadata"]["uid"] = "u"
    return ServedModel.parse(obj)


def template(of: ServedModel) -> Any:
    return model_objects(of, CONFIG, deployment=None)[-1]["spec"]["template"]


def overlaid(**spec: Any) -> Any:
    return template(model(podTemplate={"spec": spec}))["spec"]


def test_without_an_overlay_nothing_is_added_and_no_engine_restarts() -> None:
    assert template(model(podTemplate={}))["spec"] == template(model())["spec"]
    assert hash_of(model(podTemplate=None)) == hash_of(model())
    assert not {"affinity", "topologySpreadConstraints"} & template(model())["spec"].keys()


def test_an_overlay_is_a_new_pod() -> None:
    labelled = model(podTemplate={"metadata": {"labels": {"a": "b"}}})
    assert hash_of(labelled) != hash_of(model())


def test_labels_and_annotations_stand_beside_the_operators() -> None:
    of = model(podTemplate={"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}})
    metadata = template(of)["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"] == {"b": "c"}
    assert selector(of).items() <= metadata["labels"].items()


def test_an_overlay_takes_no_label_of_the_operators_even_past_the_crd() -> None:
    of = model(podTemplate={"metadata": {"labels": {"yaie.dev/model": "other"}}})
    assert template(of)["metadata"]["labels"]["yaie.dev/model"] == "demo"


def test_pull_secrets_stand_beside_those_of_the_installation() -> None:
    of = model(podTemplate={"spec": {"imagePullSecrets": [{"name": "mine"}, {"name": "ours"}]}})
    config = OperatorConfig(image_pull_secrets=("ours",))
    spec = model_objects(of, config, deployment=None)[-1]["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "ours"}, {"name": "mine"}]


def test_volumes_are_mounted_beside_the_operators() -> None:
    spec = overlaid(
        volumes=[{"name": "hub", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "x"}],
        containers=[
            {
                "name": "engine",
                "volumeMounts": [{"name": "hub", "mountPath": "/cache/huggingface"}],
            }
        ],
    )
    assert {"name": "hub", "persistentVolumeClaim": {"claimName": "c"}} in spec["volumes"]
    assert {"name": "x", "emptyDir": {}} in spec["volumes"]
    mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
    assert mounts["/cache/huggingface"] == "hub"
    assert mounts["/tmp"] == "tmp"


def test_every_volume_of_the_operators_has_a_name_that_users_cannot_take() -> None:
    spec = template(model(model={"source": "pvc://a/b"}))["spec"]
    assert {volume["name"] for volume in spec["volumes"]} <= set(pod_template.OWN_VOLUMES)
    assert set(template(model())["metadata"]["labels"]) <= {
        *pod_template.OWN_LABELS, *(k for k in template(model())["metadata"]["labels"]
                                    if k.startswith("yaie.dev/")),
    }  # fmt: skip


def test_a_selector_that_is_left_out_means_the_models_own_engines() -> None:
    own = {"matchLabels": selector(model())}
    zone, rule = "topology.kubernetes.io/zone", "requiredDuringSchedulingIgnoredDuringExecution"
    spread = {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule"}
    spec = overlaid(
        topologySpreadConstraints=[spread],
        affinity={"podAntiAffinity": {rule: [{"topologyKey": zone}]}},
    )
    assert spec["topologySpreadConstraints"] == [{**spread, "labelSelector": own}]
    anti = spec["affinity"]["podAntiAffinity"]
    assert anti == {rule: [{"topologyKey": zone, "labelSelector": own}]}


def test_a_selector_that_is_given_stays() -> None:
    other = {"matchLabels": {"app": "other"}}
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": other}
    near = {rule: [{"weight": 5, "podAffinityTerm": term}]}
    assert overlaid(affinity={"podAffinity": near})["affinity"]["podAffinity"] == near


def test_every_field_of_the_overlay_reaches_the_pod() -> None:
    given = POD["podTemplate"]["spec"]
    spec = template(model(**POD))["spec"]
    for name in given.keys() - {"volumes", "containers", "affinity", "topologySpreadConstraints"}:
        assert spec[name] == given[name]
    assert spec["affinity"]["nodeAffinity"] == given["affinity"]["nodeAffinity"]
    assert all(volume in spec["volumes"] for volume in given["volumes"][:-1])


def test_the_pods_confinement_is_the_same_with_an_overlay() -> None:
    plain, full = template(model())["spec"], template(model(**POD))["spec"]
    for name in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert full[name] == plain[name]
    own, added = plain["containers"][0], full["containers"][0]
    assert {**added, "volumeMounts": own["volumeMounts"]} == own
    assert len(full["containers"]) == 1


@pytest.mark.parametrize("name", pod_template.REFUSED_IN_SPEC)
def test_no_refused_field_is_one_of_the_type(name: str) -> None:
    aliases = {field.alias for field in pod_template.PodOverlay.model_fields.values()}
    assert name not in aliases


def test_a_pod_that_cannot_be_recorded_says_how_large_it_is_and_what_to_do() -> None:
    many = {f"a{n}": chr(1) * 4096 for n in range(16)}
    spec = model().spec.model_copy(update={"pod_template": _unchecked(many)})
    with pytest.raises(TemplateTooLargeError, match=r"takes \d+ KiB .* of at most 240; put long"):
        template(ServedModel("demo", "ns", "u", spec))


def _unchecked(annotations: dict[str, str]) -> pod_template.PodTemplate:
    """An overlay that no CRD would have accepted."""
    metadata = pod_template.TemplateMetadata.model_construct(annotations=annotations)
    return pod_template.PodTemplate.model_construct(metadata=metadata)


NODES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        ]
    }
}
AWAY = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    ]
}
MOUNT = {"name": "authorities", "mountPath": "/authorities"}


def test_a_download_has_the_surroundings_of_the_engines() -> None:
    """The registry's Secret, the names, the volumes and the nodes of podTemplate; not the rest."""
    overlay = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["hub.example.com"]}],
            "volumes": [{"name": "authorities", "secret": {"secretName": "ca"}}],
            "containers": [{"name": "engine", "volumeMounts": [MOUNT]}],
            "affinity": {"nodeAffinity": NODES, "podAntiAffinity": AWAY},
        },
    }
    cached = {"model": {"source": "hf://org/tiny"}, "cache": {"mode": "pvc", "size": "1Gi"}}
    template = job(model(podTemplate=overlay, **cached), CONFIG, "key")["spec"]["template"]
    spec = template["spec"]
    assert "team" not in template["metadata"]["labels"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["hostAliases"] == overlay["spec"]["hostAliases"]
    assert spec["volumes"][-1] == {"name": "authorities", "secret": {"secretName": "ca"}}
    assert spec["containers"][0]["volumeMounts"][-1] == MOUNT
    assert spec["affinity"] == {"nodeAffinity": NODES}
