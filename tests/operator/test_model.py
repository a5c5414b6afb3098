from typing import Any

import pytest
from pydantic import ValidationError

from fakes.fake_cluster import inference_model
from yaie_operator.model import ParsedModels


def stored(uid: str = "u", **spec: Any) -> dict[str, Any]:
    obj = inference_model(**spec)
    obj["metadata"]["uid"] = uid
    return obj


def test_a_spec_that_is_as_it_was_is_parsed_once() -> None:
    models = ParsedModels()
    first = models.parse(stored(replicas=2))
    assert models.parse({**stored(replicas=2), "status": {"phase": "Ready"}}) is first


def test_a_changed_spec_is_parsed_again_whatever_the_generation_says() -> None:
    models = ParsedModels()
    assert models.parse(stored(replicas=2)).spec.replicas == 2
    assert models.parse(stored(replicas=3)).spec.replicas == 3


def test_a_model_that_was_deleted_and_created_again_has_its_new_uid() -> None:
    models = ParsedModels()
    models.parse(stored("old"))
    assert models.parse(stored("new")).uid == "new"


def test_models_of_two_namespaces_are_not_confused() -> None:
    models = ParsedModels()
    other = stored("other")
    other["metadata"]["namespace"] = "elsewhere"
    assert [models.parse(stored()).namespace, models.parse(other).namespace] == ["ns", "elsewhere"]


def test_an_invalid_spec_is_refused_each_time_and_a_valid_one_after_it_is_not() -> None:
    models = ParsedModels()
    for _ in range(2):
        with pytest.raises(ValidationError):
            models.parse(stored(replicas="many"))
    assert models.parse(stored(replicas=1)).spec.replicas == 1


def test_a_forgotten_model_is_parsed_again() -> None:
    models = ParsedModels()
    first = models.parse(stored())
    models.forget("ns", "demo")
    assert models.parse(stored()) is not first
