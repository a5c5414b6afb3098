"""The tables of vLLM's and Ollama's settings, and what becomes of a value."""

from pathlib import Path
from typing import Any

import pytest

from yaie_api.engine_config import settings
from yaie_api.foreign_settings import synonyms
from yaie_api.foreign_settings.offline import OFFLINE
from yaie_api.foreign_settings.ollama import OLLAMA, model_problem, unread_variables
from yaie_api.foreign_settings.ollama_models import hub_name
from yaie_api.foreign_settings.verdict import SWITCH, Foreign, Harmless, Mapped, Refused
from yaie_api.foreign_settings.vllm import VLLM

ALL = [*VLLM.values(), *OLLAMA.values(), *OFFLINE.values()]


def test_the_tables_do_not_overlap_and_name_nothing_of_ours() -> None:
    names = [foreign.name for foreign in ALL]
    assert len(names) == len(set(names))
    ours = {flag for known in settings().values() for flag in (known.flag, *known.setting.flags)}
    assert not ours & {foreign.flag for foreign in ALL}


@pytest.mark.parametrize("foreign", ALL, ids=lambda foreign: foreign.name)
def test_each_is_explained_in_one_sentence(foreign: Foreign) -> None:
    assert foreign.why.endswith(".")
    assert "\n" not in foreign.why
    assert ". " not in foreign.why
    assert len(foreign.why) < 180


@pytest.mark.parametrize("foreign", ALL, ids=lambda foreign: foreign.name)
def test_what_is_mapped_names_a_setting_of_ours(foreign: Foreign) -> None:
    assert foreign.ours is None or foreign.ours in settings()


@pytest.mark.parametrize(
    ("harmless", "given", "accepted"),
    [
        ((1,), "1", True),
        ((1,), 1, True),
        ((1,), 1.0, True),
        ((1,), "2", False),
        ((1,), "one", False),
        ((True,), True, True),
        ((True,), False, False),
        (SWITCH, False, True),
        (("auto", "none"), "AUTO", True),
        ((), "anything", False),
        (None, "anything", True),
        ((), None, True),
        ((), {}, True),
        ((), [], True),
        ((), {"a": 1}, False),
    ],
)
def test_values_are_compared_as_they_are_written(harmless: Any, given: Any, accepted: bool) -> None:
    verdict = Foreign("name", "Why.", harmless).verdict(given)
    assert verdict == (Harmless("Why.") if accepted else Refused("Why."))


def test_a_setting_of_ours_gets_the_value() -> None:
    assert Foreign("ctx", "Why.", ours="max_model_len").verdict("8") == Mapped("max_model_len", "8")


def test_a_value_that_cannot_be_converted_is_refused_with_the_reason() -> None:
    foreign = Foreign("n", "Why.", ours="max_model_len", convert=int)
    assert foreign.verdict("8") == Mapped("max_model_len", 8)
    assert foreign.verdict("eight") == Refused("Why.")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"pooling_type": "LAST"}', Mapped("pooling", "last")),
        ({"seq_pooling_type": "MEAN"}, Mapped("pooling", "mean")),
        ('{"pooling_type": "CLS"}', None),
        ('{"pooling_type": "MEAN", "normalize": false}', None),
        ("MEAN", None),
        ({}, Harmless),
    ],
)
def test_a_pooler_becomes_our_pooling_where_it_says_no_more(given: Any, expected: Any) -> None:
    verdict = VLLM["pooler_config"].verdict(given)
    if isinstance(expected, Mapped):
        assert verdict == expected
    else:
        assert isinstance(verdict, expected or Refused)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("max_model_len", "8k", "8000"),
        ("max_model_len", "8K", "8192"),
        ("max_model_len", "1.5k", "1500"),
        ("max_model_len", "1.5K", "1.5K"),
        ("max_num_batched_tokens", "1M", str(2**20)),
        ("max_num_seqs", "1k", "1k"),
        ("max_model_len", 8, 8),
        ("max_model_len", -1, None),
        ("seed", -1, -1),
        ("dtype", "half", "float16"),
        ("dtype", "torch.bfloat16", "bfloat16"),
        ("dtype", "bfloat16", "bfloat16"),
    ],
)
def test_values_that_vllm_spells_otherwise_are_ours(name: str, given: Any, expected: Any) -> None:
    assert synonyms.ours(name, given) == expected


@pytest.mark.parametrize("model", ["hf://a/b", "builtin://x", "a/b", "./folder", "plain", "m@main"])
def test_what_may_be_a_model_is_no_problem(model: str) -> None:
    assert model_problem(model) is None


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama3.2", "meta-llama/Llama-3.2-3B-Instruct"),
        ("llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct"),
        ("llama3.2:latest", "meta-llama/Llama-3.2-3B-Instruct"),
        ("llama3.1:8b-instruct-q4_K_M", "meta-llama/Llama-3.1-8B-Instruct"),
        ("qwen3:0.6b", "Qwen/Qwen3-0.6B"),
        ("qwen3:30b-a3b", "Qwen/Qwen3-30B-A3B"),
        ("Qwen2.5-Coder:1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct"),
        ("mixtral:8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("library/gemma3", "google/gemma-3-4b-it"),
        ("qwen3:235b", None),
        ("my-model", None),
        ("Qwen/Qwen3-0.6B", None),
    ],
)
def test_well_known_names_of_ollama_have_one_on_the_hub(model: str, name: str | None) -> None:
    assert hub_name(model) == name


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "name:tag.gguf"
    folder.mkdir()
    assert model_problem(str(folder)) is None


def test_variables_that_are_set_are_told() -> None:
    assert list(unread_variables({"OLLAMA_HOST": "0.0.0.0", "OLLAMA_DEBUG": ""})) == ["OLLAMA_HOST"]
