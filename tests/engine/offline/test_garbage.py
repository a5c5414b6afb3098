"""The garbage collector beside offline generation."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.models.oracle import save
from engine.text.vocabularies import write_model_folder
from yaie import LLM, SamplingParams
from yaie.offline.garbage import frozen
from yaie.runtime.loop.engine_loop import EngineLoop


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_a_step_of_generate_collects_nothing_that_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_alone: list[int] = []
    step = EngineLoop.step

    def watched(self: EngineLoop) -> bool:
        left_alone.append(gc.get_freeze_count())
        return step(self)

    monkeypatch.setattr(EngineLoop, "step", watched)
    folder = write_model_folder(save("llama-gqa", tmp_path))
    with LLM(folder, device="cpu", cpu_threads=1, kv_cache_tokens=512) as llm:
        before = len(gc.get_objects())
        llm.generate([[3, 4, 5]], SamplingParams(max_tokens=3, ignore_eos=True))
    assert min(left_alone) >= before > 50_000
    assert gc.get_freeze_count() == 0


def test_a_failure_undoes_it() -> None:
    with pytest.raises(RuntimeError), frozen():
        raise RuntimeError
    assert gc.get_freeze_count() == 0


def test_garbage_of_meanwhile_is_found() -> None:
    class Knot:
        pass

    with frozen():
        knot = Knot()
        knot.itself = knot  # type: ignore[attr-defined]
        seen = weakref.ref(knot)
        del knot
        gc.collect()
        assert seen() is None


def test_what_the_caller_froze_stays_frozen() -> None:
    gc.freeze()
    with frozen():
        pass
    assert gc.get_freeze_count() > 0
