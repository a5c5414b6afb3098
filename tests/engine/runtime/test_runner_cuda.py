"""The same promises on a GPU: graphs on and off, one step in flight, padded rows, seeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.models.oracle import Reference, reference, save
from engine.runtime.test_runner_metamorphic import Memory
from yaie import LLM, SamplingParams
from yaie.runtime.graphs.capture import CudaRecorder
from yaie.runtime.graphs.decode import DecodeGraphs
from yaie.runtime.graphs.mixed import MixedGraph, MixedGraphs, MixedKey

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
VARIANTS = ("llama-gqa", "llama-head-dim-bias", "qwen3-tied-bias-odd-vocab", "qwen3-window")
GREEDY = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)


def load(folder: Path, device: str, *, eager: bool = False, tokens: int = 2048) -> LLM:
    return LLM(
        str(folder),
        device=device,
        dtype="float32",
        enforce_eager=eager,
        kv_cache_tokens=tokens,
        max_num_seqs=8,
    )


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def folder(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return save(variant, tmp_path_factory.mktemp(variant))


def references(variant: str) -> list[Reference]:
    return [reference(variant, length) for length in (1, 16, 37)]


@pytest.mark.parametrize("eager", [False, True], ids=["graphs", "eager"])
def test_greedy_tokens_match_transformers(variant: str, folder: Path, eager: bool) -> None:
    llm = load(folder, "cuda", eager=eager)
    expected = references(variant)
    outputs = llm.generate([one.prompt for one in expected], GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy for one in expected]
    again = llm.generate([expected[2].prompt], GREEDY)[0]
    assert again.num_cached_tokens == 32
    assert again.outputs[0].token_ids == expected[2].greedy


def test_preempted_sequences_match_transformers(variant: str, folder: Path) -> None:
    expected = references(variant)
    outputs = load(folder, "cuda", tokens=176).generate([one.prompt for one in expected], GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy for one in expected]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "graphs"])
def test_guesses_change_no_token(
    variant: str, folder: Path, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps with drafts run beside captured decodes, and hand the last token on to them."""
    expected = references(variant)
    llm = load(folder, "cuda")
    memory = Memory([(*one.prompt, *one.greedy) for one in expected])
    loop = llm._driver._loop
    loop._scheduler.drafter = memory
    replayed: list[MixedKey] = []
    if captured:
        loop._runner.capture_with(CudaRecorder(), 128, drafts=True)
        loop._runner.warm_up()
        places = MixedGraph.places
        monkeypatch.setattr(
            MixedGraph,
            "places",
            lambda self, arrays: replayed.append(self.key) or places(self, arrays),
        )
    scored = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True, logprobs=0)
    params = [GREEDY, scored, GREEDY]
    outputs = llm.generate([one.prompt for one in expected], params)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy for one in expected]
    assert memory.n_guesses > 60
    assert (sum(key.drafts for key in replayed) > 10) is captured


def test_seeds_give_the_cpus_tokens(variant: str, folder: Path) -> None:
    params = [
        SamplingParams(temperature=1.0, seed=5, max_tokens=24, ignore_eos=True),
        SamplingParams(temperature=0.8, top_k=20, seed=6, max_tokens=24, ignore_eos=True),
        SamplingParams(temperature=1.2, top_p=0.8, min_p=0.02, seed=7, max_tokens=24),
    ]
    prompts = [one.prompt for one in references(variant)]
    answers = [
        [o.outputs[0].token_ids for o in load(folder, device).generate(prompts, params)]
        for device in ("cpu", "cuda")
    ]
    assert answers[0] == answers[1]


def test_without_memory_for_graphs_steps_run_eagerly(
    variant: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(DecodeGraphs, "capture", fail)
    monkeypatch.setattr(MixedGraphs, "capture", fail)
    expected = references(variant)
    outputs = load(folder, "cuda").generate([one.prompt for one in expected], GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy for one in expected]


def test_chunks_beside_decodes_run_in_graphs_and_give_the_same_tokens(
    variant: str, folder: Path
) -> None:
    """Prompts arrive while others decode, and are computed eight tokens a step."""
    expected = references(variant)
    llm = LLM(
        str(folder),
        device="cuda",
        dtype="float32",
        kv_cache_tokens=2048,
        max_num_seqs=8,
        max_num_batched_tokens=8,
        enable_prefix_caching=False,
    )
    outputs = llm.generate([one.prompt for one in expected] * 2, GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy for one in expected] * 2
