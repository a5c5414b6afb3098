"""Keywords of `LLM`: ours, vLLM's and Ollama's, and those that nobody has."""

import logging
from typing import Any, get_type_hints

import pytest
import torch

from engine.cli.vllm_options import KEYWORDS
from yaie import LLM
from yaie.offline import keywords
from yaie.offline.keywords import EngineSettings
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError


def test_the_typed_keywords_are_the_settings_of_the_engine() -> None:
    assert get_type_hints(EngineSettings) == {
        name: kind for name, kind in get_type_hints(EngineConfig).items() if name != "model"
    }


@pytest.mark.parametrize("name", KEYWORDS)
def test_no_keyword_of_vllm_is_unknown(name: str) -> None:
    """It is ours, or stands in a table with what becomes of its values."""
    assert set(keywords.read({name: None})) <= EngineSettings.__annotations__.keys()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_model_len": 8, "seed": 1}, {"max_model_len": 8, "seed": 1}),
        ({"block_size": 32, "swap_space": 4}, {"page_size": 32, "swap_space_gib": 4}),
        ({"tensor_parallel_size": 1, "trust_remote_code": False}, {}),
        ({"dtype": torch.bfloat16}, {"dtype": "bfloat16"}),
        ({"dtype": "half", "model_impl": "vllm"}, {"dtype": "float16", "model_impl": "yaie"}),
        ({"max_model_len": -1}, {"max_model_len": None}),
        ({"max_model_len": "8k"}, {"max_model_len": 8000}),
        ({"num_ctx": 4096}, {"max_model_len": 4096}),
        ({"pooler_config": {"pooling_type": "MEAN"}}, {"pooling": "mean"}),
        ({"runner": "pooling", "generation_config": "vllm"}, {}),
        ({"quantization": None, "hf_overrides": {}, "mm_processor_kwargs": {"a": 1}}, {}),
        ({"seed": 7, "served_model_name": "a"}, {"seed": 7, "served_model_name": "a"}),
    ],
)
def test_keywords_become_our_settings(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert keywords.read(given) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2: An engine runs on one GPU"),
        ({"trust_remote_code": True}, "Code of a checkpoint is never run"),
        ({"quantization": "awq"}, "name the unquantized model"),
        ({"kv_cache_memory_bytes": 2**30}, "write kv_cache_tokens"),
        ({"generation_config": "auto"}, "pass sampling_params"),
        ({"host": "0.0.0.0"}, "there is no server here"),
    ],
)
def test_what_cannot_be_had_is_explained_with_keywords(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as refused:
        LLM("builtin://yaie-demo", **given)
    assert refused.value.param == next(iter(given))


@pytest.mark.parametrize(
    ("name", "near"),
    [("max_modl_len", "max_model_len"), ("tensor_paralel_size", "tensor_parallel_size")],
)
def test_what_nobody_has_is_a_type_error_with_a_guess(name: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"LLM has no setting {name}; did you mean {near}?"):
        LLM("builtin://yaie-demo", **{name: 1})


def test_the_log_tells_what_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        keywords.read({"tensor_parallel_size": 1, "quantization": None})
    assert [record.message for record in caplog.records] == ["a setting changes nothing"]


@pytest.mark.parametrize("model", ["qwen3:0.6b", "model.gguf"])
def test_names_of_ollamas_and_gguf_files_are_called_so(model: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"Ollama|GGUF"):
        LLM(model)
