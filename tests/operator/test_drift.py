"""Which fields count as added by others."""

from typing import Any

import pytest

from yaie_operator.reconcile.drift import has_foreign_fields, has_foreign_keys

DESIRED = {
    "spec": {
        "selector": {"a": "b"},
        "template": {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "engine"}]}},
        "ports": [{"port": 80, "name": "http"}],
        "finalizers": ["kept"],
    }
}


def entry(manager: str = "kubectl", operation: str = "Update", **fields: Any) -> dict[str, Any]:
    fieldset = {"f:" + key: value for key, value in fields.items()}
    return {"manager": manager, "operation": operation, "fieldsV1": fieldset}


RESTART = {"f:kubectl.kubernetes.io/restartedAt": {}}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (entry(spec={"f:hostNetwork": {}}), True),
        (entry(spec={"f:selector": {".": {}, "f:a": {}}}), False),
        (entry(spec={"f:selector": {"f:other": {}}}), True),
        (entry(spec={"f:template": {"f:metadata": {"f:annotations": RESTART}}}), False),
        (
            entry(spec={"f:template": {"f:metadata": {"f:annotations": {".": {}, **RESTART}}}}),
            False,
        ),
        (
            entry(spec={"f:template": {"f:metadata": {"f:annotations": {**RESTART, "f:x": {}}}}}),
            True,
        ),
        (entry(spec={"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}}}}), False),
        (entry(spec={"f:ports": {'k:{"port":81,"protocol":"TCP"}': {".": {}}}}), True),
        (entry(spec={"f:finalizers": {'v:"kept"': {}}}), False),
        (entry(spec={"f:finalizers": {'v:"added"': {}}}), True),
        (entry(metadata={"f:annotations": {"f:theirs": {}}}), False),
        (entry(status={"f:replicas": {}}), False),
        (entry("yaie-operator", "Apply", spec={"f:old": {}}), False),
        (entry("yaie-operator", spec={"f:old": {}}), True),
        (entry(data={"f:key": {}}), True),
    ],
)
def test_a_field_is_foreign_if_another_writer_set_it_and_the_manifest_does_not(
    written: dict[str, Any], expected: bool
) -> None:
    assert has_foreign_fields(DESIRED, {"metadata": {"managedFields": [written]}}) is expected


def test_fields_without_a_writer_are_defaults_and_stay() -> None:
    assert not has_foreign_fields(DESIRED, {"metadata": {}, "spec": {"hostNetwork": False}})


@pytest.mark.parametrize(
    ("live", "expected"),
    [({"a": "b"}, False), ({"a": "other"}, False), ({}, False), (None, False),
     ({"a": "b", "stray": "yes"}, True)],
)  # fmt: skip
def test_a_key_in_a_services_selector_is_foreign_whoever_has_written_it(
    live: dict[str, str] | None, expected: bool
) -> None:
    desired = DESIRED | {"kind": "Service"}
    assert has_foreign_keys(desired, {"spec": {"selector": live}}) is expected


def test_other_maps_may_have_more_keys() -> None:
    """An admission policy may add to them."""
    live = {"spec": {"selector": {"matchLabels": {}, "more": {}}}}
    assert not has_foreign_keys(DESIRED | {"kind": "Deployment"}, live)
