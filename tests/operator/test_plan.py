import copy
from functools import partial
from typing import Any

import pytest

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import NetworkSettings
from yaie_operator.reconcile.observe import Ref, SharedView
from yaie_operator.reconcile.plan import (
    Apply,
    Remove,
    differs,
    foreign_shared,
    is_our_shared,
    is_ours,
    plan,
)
from yaie_operator.reconcile.quantity import amount
from yaie_operator.resources.shared import ANNOTATION_APPLIED, manifest

OWNER = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "demo", "uid": "u"}
ours = partial(is_ours, owner_uid="u")


def deployment(**container: Any) -> Object:
    pod = {"containers": [{"name": "engine", **container}]}
    return manifest(
        "apps/v1", "Deployment", name="demo", namespace="ns", labels={"a": "b"}, owners=[OWNER],
        spec={"replicas": 1, "template": {"spec": pod}},
    )  # fmt: skip


def live(desired: Object) -> dict[str, Any]:
    """What the API server makes of a manifest: more fields, another order."""
    stored: dict[str, Any] = copy.deepcopy(dict(desired))
    stored["metadata"] |= {"uid": "d", "resourceVersion": "1", "generation": 1}
    stored["spec"] |= {"minReadySeconds": 0}
    stored["spec"]["template"]["spec"] |= {"dnsPolicy": "ClusterFirst"}
    stored["spec"]["template"]["spec"]["containers"][0] |= {"terminationMessagePath": "/x"}
    return stored


def container(obj: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["template"]["spec"]["containers"][0]
    return found


def requests(**resources: str) -> dict[str, Any]:
    return {"resources": {"requests": resources}}


def test_an_absent_object_is_applied_as_new() -> None:
    assert plan((deployment(),), {}, ours).writes == (Apply(deployment(), None),)


def test_an_object_that_has_all_our_fields_is_left_alone() -> None:
    wanted = deployment(image="a", args=["x"], env=[{"name": "A", "value": "1"}])
    assert plan((wanted,), {Ref.of(wanted): live(wanted)}, ours).writes == ()


def test_fields_that_others_set_are_theirs() -> None:
    wanted = deployment(image="a", env=[{"name": "A", "value": "1"}])
    stored = live(wanted)
    container(stored)["env"].insert(0, {"name": "INJECTED", "value": "x"})
    stored["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"})
    stored["metadata"]["labels"]["theirs"] = "x"
    assert not differs(wanted, stored)


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        (requests(cpu="1000m"), requests(cpu="1")),
        (requests(memory="1024Mi"), requests(memory="1Gi")),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"stdin": False}, {}),
        ({"args": []}, {}),
    ],
    ids=["cpu", "memory", "empty value", "false", "empty list"],
)  # fmt: skip
def test_the_api_servers_normal_form_is_the_same(
    wanted: dict[str, Any], stored: dict[str, Any]
) -> None:
    desired = deployment(**wanted)
    actual = live(desired)
    for key in wanted:
        container(actual).pop(key)
    container(actual).update(stored)
    assert not differs(desired, actual)


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        ({"image": "a"}, {"image": "b"}),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}),
        ({"args": ["a"]}, {"args": ["a", "b"]}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "1"}]}),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "2"}}}),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {}}),
        ({"volumeMounts": [{"mountPath": "/a", "name": "x"}]}, {"volumeMounts": []}),
    ],
)
def test_another_value_of_a_field_of_ours_is_mended(
    wanted: dict[str, Any], stored: dict[str, Any]
) -> None:
    desired = deployment(**wanted)
    actual = live(desired)
    container(actual).update(stored)
    assert plan((desired,), {Ref.of(desired): actual}, ours).writes == (Apply(desired, actual),)


def test_a_field_that_is_no_longer_wanted_is_taken_back() -> None:
    before, after = deployment(image="a", tty=True), deployment(image="a")
    assert differs(after, live(before))
    assert before["metadata"]["annotations"] != after["metadata"]["annotations"]


def test_an_empty_dir_must_be_there() -> None:
    desired = copy.deepcopy(dict(deployment()))
    desired["spec"]["template"]["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    actual = live(desired)
    assert not differs(desired, actual)
    actual["spec"]["template"]["spec"]["volumes"] = [{"name": "tmp", "hostPath": {"path": "/"}}]
    assert differs(desired, actual)


@pytest.mark.parametrize("owners", [[], [{**OWNER, "uid": "other"}]])
def test_a_foreign_object_is_a_conflict_and_nothing_at_all_is_written(
    owners: list[dict[str, Any]],
) -> None:
    wanted = deployment()
    other = manifest("v1", "Service", name="demo", namespace="ns", labels={}, owners=[OWNER])
    stored = live(wanted)
    stored["metadata"]["ownerReferences"] = owners
    decided = plan((other, wanted), {Ref.of(wanted): stored}, ours)
    assert decided.conflicts == (Ref("Deployment", "ns", "demo"),)
    assert decided.writes == ()


def test_the_applied_hash_is_part_of_every_manifest() -> None:
    annotations = deployment()["metadata"]["annotations"]
    assert len(annotations[ANNOTATION_APPLIED]) == 16


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}, True),
        ({"annotations": {ANNOTATION_APPLIED: "x"}}, True),
        ({"labels": {names.LABEL_MANAGED_BY: "Helm"}, "annotations": {}}, False),
        ({}, False),
    ],
)
def test_a_shared_object_is_ours_by_its_label_or_by_its_annotation(
    metadata: dict[str, Any], expected: bool
) -> None:
    assert is_our_shared({"metadata": metadata}) is expected


def test_shared_names_in_foreign_hands_are_listed() -> None:
    metadata = {"name": names.ROUTER, "namespace": "ns"}
    ours = {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}
    router = {"kind": "Deployment", "metadata": metadata | ours}
    service = {"kind": "Service", "metadata": metadata}
    view = SharedView("ns", (), {Ref.of(o): o for o in (router, service)})
    assert foreign_shared(view, OperatorConfig()) == (Ref("Service", "ns", names.ROUTER),)


def test_a_foreign_object_is_in_the_way_only_where_ours_should_be() -> None:
    ref = Ref("NetworkPolicy", "ns", names.ROUTER)
    view = SharedView("ns", (), {ref: {"kind": ref.kind, "metadata": {"name": ref.name}}})
    assert foreign_shared(view, OperatorConfig()) == ()
    assert foreign_shared(view, OperatorConfig(network=NetworkSettings())) == (ref,)


def test_an_object_of_ours_that_is_not_wanted_any_more_goes_and_a_foreign_one_stays() -> None:
    gone = live(deployment())
    other = {**gone, "kind": "Service", "metadata": {"name": "demo", "namespace": "ns"}}
    observed = {Ref.of(obj): obj for obj in (gone, other)}
    assert plan((), observed, ours).writes == (Remove(gone),)


@pytest.mark.parametrize(
    ("one", "same"), [("1000m", "1"), ("1Gi", "1024Mi"), ("1.5", "1500m"), ("2k", "2000")]
)
def test_quantities_are_compared_by_amount(one: str, same: str) -> None:
    assert amount(one) == amount(same) is not None


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Zi", "-1"])
def test_what_is_no_quantity_has_no_amount(text: str) -> None:
    assert amount(text) is None
