from typing import Any

import pytest

from fakes.local_objects import obj
from yaie_local.apiserver.managed_fields import apply, fields_of, owners_of, record_update
from yaie_operator.cluster import ConflictError

EMPTY: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}


def applied(live: Any, *, manager: str = "op", force: bool = False, **body: Any) -> Any:
    return apply(live, obj(**body), manager=manager, force=force)


def test_what_is_applied_is_there_and_owned() -> None:
    live = applied(EMPTY, data={"a": "1"})
    assert live["data"] == {"a": "1"}
    assert owners_of(live) == {("op", "Apply"): frozenset({("f:data", "f:a")})}
    assert live["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_a_field_left_out_goes_and_others_stay() -> None:
    live = applied(EMPTY, data={"a": "1", "b": "2"})
    live = {**live, "data": {**live["data"], "foreign": "3"}}
    assert applied(live, data={"a": "1"})["data"] == {"a": "1", "foreign": "3"}


def test_the_last_field_of_an_object_takes_it_along() -> None:
    live = applied(EMPTY, data={"a": "1"}, metadata={"labels": {"x": "y"}})
    later = applied(live, data={"a": "1"})
    assert "labels" not in later["metadata"]


def test_a_field_that_two_own_stays_until_both_left_it() -> None:
    live = applied(EMPTY, manager="one", data={"a": "1"})
    live = applied(live, manager="two", data={"a": "1"})
    live = applied(live, manager="one")
    assert live["data"] == {"a": "1"}
    assert "data" not in applied(live, manager="two")


def test_another_managers_value_is_a_conflict_unless_forced() -> None:
    live = applied(EMPTY, manager="one", data={"a": "1"})
    with pytest.raises(ConflictError, match=r'conflict with "one": data\.a'):
        applied(live, manager="two", data={"a": "2"})
    forced = applied(live, manager="two", force=True, data={"a": "2"})
    assert forced["data"] == {"a": "2"}
    assert ("one", "Apply") not in owners_of(forced)


def test_containers_merge_by_name_and_plain_lists_are_replaced() -> None:
    spec = {"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}]}
    live = applied(EMPTY, manager="one", spec=spec)
    other = {"containers": [{"name": "b", "image": "2"}]}
    live = applied(live, manager="two", spec=other)
    changed = {"containers": [{"name": "a", "image": "1", "args": ["z"]}]}
    live = applied(live, manager="one", spec=changed)
    assert live["spec"]["containers"] == [
        {"name": "a", "image": "1", "args": ["z"]},
        {"name": "b", "image": "2"},
    ]


def test_an_item_that_is_no_longer_applied_goes() -> None:
    ports = [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]
    live = applied(EMPTY, spec={"ports": ports})
    assert applied(live, spec={"ports": ports[1:]})["spec"]["ports"] == ports[1:]


def test_owner_references_are_keyed_by_uid() -> None:
    live = applied(EMPTY, metadata={"ownerReferences": [{"uid": "1", "name": "a"}]})
    live = applied(live, metadata={"ownerReferences": [{"uid": "2", "name": "b"}]})
    assert [o["uid"] for o in live["metadata"]["ownerReferences"]] == ["2"]


def test_a_patch_takes_what_it_changes_from_its_owner() -> None:
    live = applied(EMPTY, manager="file", spec={"replicas": 1, "other": 1})
    scaled = record_update(live, {**live, "spec": {"replicas": 3, "other": 1}}, manager="scale")
    assert owners_of(scaled)["scale", "Update"] == {("f:spec", "f:replicas")}
    assert owners_of(scaled)["file", "Apply"] == {("f:spec", "f:other")}


def test_a_file_without_replicas_does_not_undo_a_scale() -> None:
    live = applied(EMPTY, manager="file", spec={"other": 1})
    scaled = record_update(live, {**live, "spec": {"replicas": 3, "other": 1}}, manager="scale")
    assert applied(scaled, manager="file", spec={"other": 2})["spec"] == {"replicas": 3, "other": 2}


def test_the_same_again_changes_nothing() -> None:
    once = applied(
        EMPTY, spec={"containers": [{"name": "a", "env": [{"name": "x", "value": "1"}]}]}
    )
    again = applied(
        once, spec={"containers": [{"name": "a", "env": [{"name": "x", "value": "1"}]}]}
    )
    assert again == once


def test_identity_and_server_metadata_are_nobodys() -> None:
    meta = {"uid": "1", "resourceVersion": "2", "labels": {"a": "b"}}
    assert fields_of(obj(metadata=meta)) == {("f:metadata", "f:labels", "f:a")}
