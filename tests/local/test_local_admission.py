from typing import Any

import pytest

from fakes.local_objects import deployment, model, obj
from yaie_api.resource import crd
from yaie_local.apiserver import cel, schema
from yaie_local.apiserver.admission import Admission
from yaie_operator.cluster import RefusedError

ADMISSION = Admission(crd.render(local=True))


def refusal(candidate: Any, old: Any = None) -> str:
    with pytest.raises(RefusedError) as caught:
        ADMISSION.admit(candidate, old)
    return str(caught.value)


def test_defaults_are_filled_at_every_level() -> None:
    spec = ADMISSION.admit(model(engine={"kvCache": {"pageSize": 32}}), None)["spec"]
    assert spec["replicas"] == 1
    assert spec["engine"]["kvCache"] == {"pageSize": 32, "memoryFraction": 0.9}
    assert spec["resources"]["gpu"]["count"] == 0


def test_a_path_on_disk_is_welcome_here() -> None:
    source = {"source": "file:///models/a"}
    assert ADMISSION.admit(model(model=source), None)["spec"]["model"] == source


def test_one_problem_is_told_as_the_api_server_tells_it() -> None:
    assert refusal(model(replicas="two")) == (
        'InferenceModel.yaie.dev "demo" is invalid: spec.replicas: Invalid value: "string": '
        'spec.replicas in body must be of type integer: "string"'
    )


def test_several_problems_are_told_together() -> None:
    said = refusal(model(replicas=-1, routing={"policy": "Random"}))
    assert "is invalid: [spec.replicas: Invalid value: -1" in said
    assert 'spec.routing.policy: Unsupported value: "Random": supported values:' in said


def test_a_typo_is_an_unknown_field() -> None:
    assert "spec.modle: unknown field" in refusal(model(modle={}))


def test_a_rule_says_what_to_write() -> None:
    said = refusal(model(rollout={"maxSurge": 0, "maxUnavailable": 0}))
    assert "write maxUnavailable: 1 where no spare GPU exists" in said


def test_a_transition_rule_compares_with_the_stored_object() -> None:
    old = ADMISSION.admit(model(model={"source": "hf://a/b", "servedName": "x"}), None)
    new = model(model={"source": "hf://a/b", "servedName": "y"})
    assert "model.servedName cannot change" in refusal(new, old)
    assert ADMISSION.admit(new, None)


def test_null_where_a_default_stands_means_not_given() -> None:
    assert ADMISSION.admit(model(replicas=None), None)["spec"]["replicas"] == 1


def test_null_elsewhere_is_of_the_wrong_type() -> None:
    said = refusal(model(model={"source": None}))
    assert 'spec.model.source in body must be of type string: "null"' in said


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a" * 254])
def test_names_are_dns_subdomains(name: str) -> None:
    assert "metadata.name" in refusal(obj(name=name))


def test_what_processes_cannot_give_is_refused_with_a_reason() -> None:
    sidecar = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert "one process" in refusal(deployment(pod=sidecar))
    assert "sidecars" in refusal(deployment(pod={"initContainers": [{"name": "a"}]}))
    host = {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    assert "volumes[v]" in refusal(deployment(pod=host))


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


@pytest.mark.parametrize(
    ("node", "value", "said"),
    [
        (text(maxLength=2), "abc", "x: Too long: may not be more than 2 bytes"),
        (text(minLength=1), "", "should be at least 1 chars long"),
        (text(pattern="^a"), "b", "x in body should match '^a'"),
        ({"type": "integer", "minimum": 1}, 0, "should be greater than or equal to 1"),
        ({"type": "integer", "maximum": 1}, 2, "should be less than or equal to 1"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0, "greater than 0"),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, 1, "less than 1"),
        ({"type": "integer"}, True, 'must be of type integer: "boolean"'),
        ({"type": "integer"}, 1.5, 'must be of type integer: "number"'),
        ({"type": "array", "maxItems": 1, "items": {}}, [1, 2], "x: Too many: 2"),
        ({"type": "array", "minItems": 1, "items": {}}, [], "at least 1 items"),
        ({"type": "object", "required": ["y"]}, {}, "x.y: Required value"),
        ({"type": "object", "maxProperties": 0, "properties": {"y": {}}}, {"y": 1}, "Too many: 1"),
        ({"x-kubernetes-int-or-string": True}, [], "must be of type integer,string"),
        ({"x-kubernetes-int-or-string": True, "pattern": "^1"}, "2", "should match"),
        (
            {"type": "array", "items": text(), "x-kubernetes-list-type": "set"},
            ["a", "a"],
            'x[1]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"n": text(), "v": text()}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
            },
            [{"n": "a"}, {"n": "b"}, {"n": "a", "v": "c"}],
            'x[2]: Duplicate value: {"n": "a"}',
        ),
    ],
)
def test_structural_violations(node: dict[str, Any], value: Any, said: str) -> None:
    (found,) = schema.errors(node, value, "x")
    assert said in found


@pytest.mark.parametrize("value", [1, 1.0, "1"])
def test_int_or_string_takes_both(value: Any) -> None:
    node = {"x-kubernetes-int-or-string": True}
    expected = [] if value != 1.0 or isinstance(value, int) else [1]
    assert len(list(schema.errors(node, value, "x"))) == len(expected)


def test_free_form_objects_know_every_field() -> None:
    node = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert list(schema.unknown_fields(node, {"a": {"b": [1]}})) == []


def test_defaults_are_fresh_for_each_object() -> None:
    node = {"type": "object", "properties": {"a": {"type": "object", "default": {"b": [1]}}}}
    first = schema.with_defaults(node, {})
    first["a"]["b"].append(2)
    assert schema.with_defaults(node, {}) == {"a": {"b": [1]}}


def rule(expression: str, **more: str) -> list[dict[str, str]]:
    return [{"rule": expression, "message": "no", **more}]


def test_numbers_are_doubles_to_cel_even_when_written_whole() -> None:
    node = {"type": "number", "x-kubernetes-validations": rule("self <= 1.5")}
    assert list(cel.violations(node, 1)) == []
    assert list(cel.violations(node, 2, path="x")) == ["x: Invalid value: no"]


def test_a_message_expression_is_evaluated() -> None:
    more = rule("self < 1", messageExpression="'got ' + string(self)")
    node = {"type": "integer", "x-kubernetes-validations": more}
    assert list(cel.violations(node, 5, path="x")) == ["x: Invalid value: got 5"]


def test_items_of_list_maps_are_compared_by_key_and_new_ones_are_free() -> None:
    node = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
        "items": {
            "type": "object",
            "properties": {"n": text(), "v": text()},
            "x-kubernetes-validations": rule("self.v == oldSelf.v"),
        },
    }
    old = [{"n": "a", "v": "1"}, {"n": "b", "v": "1"}]
    new = [{"n": "b", "v": "2"}, {"n": "a", "v": "1"}, {"n": "c", "v": "3"}]
    assert list(cel.violations(node, new, old)) == ["[0]: Invalid value: no"]
