"""The end of an `LLM`: nothing of its engine is left."""

import gc
import threading
import weakref
from pathlib import Path

import pytest

from engine.models.oracle import save
from engine.text.vocabularies import write_model_folder
from yaie import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(save("llama-gqa", tmp_path_factory.mktemp("model")))


def load(folder: Path) -> LLM:
    return LLM(folder, device="cpu", cpu_threads=1, kv_cache_tokens=256)


def test_a_closed_llm_leaves_no_thread_and_no_tensor(folder: Path) -> None:
    gc.collect()
    before = set(threading.enumerate())
    with load(folder) as llm:
        llm.generate("a", GREEDY, structured_outputs={"choice": ["yes", "no"]})
        assert set(threading.enumerate()) - before
        assert llm._driver._loop is not None
        runner = weakref.ref(llm._driver._loop._runner)
    assert runner() is None
    assert set(threading.enumerate()) <= before


def test_a_closed_llm_says_so_and_closes_again(folder: Path) -> None:
    llm = load(folder)
    llm.close()
    llm.close()
    for call in (lambda: llm.generate("a", GREEDY), llm.reset_prefix_cache):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert llm.info.vocab_size > 0
    assert llm.tokenizer.encode("a")


def test_an_error_closes_it_too(folder: Path) -> None:
    with pytest.raises(KeyError), load(folder) as llm:
        raise KeyError
    with pytest.raises(RuntimeError, match="closed"):
        llm.generate("a", GREEDY)


def test_another_one_can_be_loaded_afterwards(folder: Path) -> None:
    with load(folder) as first:
        expected = first.generate([[5, 6, 7]], GREEDY)[0].outputs
    with load(folder) as second:
        assert second.generate([[5, 6, 7]], GREEDY)[0].outputs == expected
