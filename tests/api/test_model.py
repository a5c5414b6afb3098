import pytest
from pydantic import ValidationError

from yaie_api.resource.model import InferenceModelSpec, InferenceModelStatus


def spec(**fields: object) -> InferenceModelSpec:
    return InferenceModelSpec.parse({"model": {"source": "hf://a/b"}, **fields})


def test_the_smallest_spec_has_every_default() -> None:
    smallest = spec()
    assert smallest.replicas == 1
    assert smallest.resources.gpu.count == 0
    assert smallest.rollout.max_surge == 1
    assert smallest.routing.policy == "PrefixAffinity"


def test_json_uses_camel_case_and_comes_back_the_same() -> None:
    full = spec(engine={"maxModelLen": 4096, "kvCache": {"memoryFraction": 0.5}})
    dumped = full.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert dumped == {
        "model": {"source": "hf://a/b"},
        "engine": {"maxModelLen": 4096, "kvCache": {"memoryFraction": 0.5}},
    }
    assert InferenceModelSpec.parse(dumped) == full


def test_a_cpu_count_may_be_a_number_as_in_a_pod() -> None:
    assert spec(resources={"cpu": 2}).resources.cpu == "2"


@pytest.mark.parametrize("value", [True, 1.5, "2 cores", "", [2]])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        spec(resources={"cpu": value})


def test_unknown_fields_are_refused_at_any_depth() -> None:
    with pytest.raises(ValidationError, match=r"kvCache\.pages"):
        spec(engine={"kvCache": {"pages": 3}})


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().replicas = 3  # type: ignore[misc]  # the point of the test


def test_a_suspended_model_wants_no_engine_and_keeps_its_replicas() -> None:
    suspended = spec(replicas=3, suspend=True)
    assert (suspended.replicas, suspended.desired_replicas) == (3, 0)
    assert spec(replicas=3).desired_replicas == 3


def test_an_empty_status_is_valid() -> None:
    assert InferenceModelStatus.model_validate({}).ready == ""
