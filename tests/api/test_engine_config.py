"""The settings of an engine: each is described once, and its limits hold."""

from typing import Any

import msgspec
import pytest

from yaie_api.engine_config import EngineConfig, problem, settings


def test_every_field_but_the_names_of_the_model_is_a_setting() -> None:
    fields = {field.name for field in msgspec.structs.fields(EngineConfig)}
    assert fields - settings().keys() == {"model", "served_model_name"}


def test_a_setting_has_the_type_choices_and_default_of_its_field() -> None:
    known = settings()
    assert known["page_size"][1:4] == (int, (), 16)
    assert known["max_model_len"][1:4] == (int, (), None)
    assert known["request_timeout_s"].kind is float
    assert known["enforce_eager"].kind is bool
    assert known["load_format"].choices == ("auto", "dummy")


def test_defaults_are_told_in_words() -> None:
    told = {name: known.told_default for name, known in settings().items()}
    assert told["gpu_memory_utilization"] == "0.9"
    assert told["enable_prefix_caching"] == "on"
    assert told["kv_cache_tokens"] == "what the memory holds"
    assert not told["revision"]


@pytest.mark.parametrize("name", settings())
def test_a_default_is_no_problem(name: str) -> None:
    assert problem(name, settings()[name].default) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("page_size", 0, "must be at least 1"),
        ("gpu_memory_utilization", 0.0, "must be in (0, 1]"),
        ("gpu_memory_utilization", 1.5, "must be in (0, 1]"),
        ("gpu_memory_utilization", 1.0, None),
        ("max_logprobs", -2, "must be at least -1"),
        ("max_logprobs", -1, None),
        ("load_format", "pickle", "must be one of auto, dummy"),
        ("step_time_target_s", float("inf"), None),
    ],
)
def test_a_value_out_of_its_limits_is_told(name: str, value: Any, told: str | None) -> None:
    assert problem(name, value) == told
