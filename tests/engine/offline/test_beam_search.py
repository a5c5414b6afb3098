"""Beam search against transformers' own, and what it refuses."""

import json
from typing import Any

import pytest
import torch

from engine.models.oracle import hf_model_float64, prompt, save
from engine.text.vocabularies import write_model_folder
from yaie import LLM, BeamSearchParams
from yaie_api.errors import ContextLengthError, InvalidRequestError

VARIANT = "llama-gqa"
EOS = tuple(range(3, 512, 16))
"""So many that beams meet one after some steps."""


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_model_folder(save(VARIANT, tmp_path_factory.mktemp("model")))
    for name in ("config.json", "generation_config.json"):
        raw = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(raw | {"eos_token_id": list(EOS)}))
    with LLM(folder, device="cpu", cpu_threads=1, kv_cache_tokens=4096, max_logprobs=40) as found:
        yield found


def transformers_beams(start: tuple[int, ...], params: BeamSearchParams) -> Any:
    """What transformers finds in float64: sequences and their scores."""
    with torch.inference_mode():
        return hf_model_float64(VARIANT).generate(
            torch.tensor([start]),
            num_beams=params.beam_width,
            num_return_sequences=params.beam_width,
            max_new_tokens=params.max_tokens,
            length_penalty=params.length_penalty,
            early_stopping="never",
            do_sample=False,
            eos_token_id=None if params.ignore_eos else list(EOS),
            pad_token_id=1,
            output_scores=True,
            return_dict_in_generate=True,
        )


@pytest.mark.parametrize("ignore_eos", [False, True])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("size", [(2, 12, 0), (3, 16, 1), (6, 20, 2)])
def test_sequences_and_scores_are_transformers(
    llm: LLM, size: tuple[int, int, int], length_penalty: float, ignore_eos: bool
) -> None:
    beam_width, length, seed = size
    start = prompt(VARIANT, 17, seed)
    params = BeamSearchParams(
        beam_width=beam_width,
        max_tokens=length,
        length_penalty=length_penalty,
        ignore_eos=ignore_eos,
    )
    (output,) = llm.beam_search([start], params)
    expected = transformers_beams(start, params)
    assert len(output.sequences) == beam_width
    for ours, ids, score in zip(
        output.sequences, expected.sequences.tolist(), expected.sequences_scores, strict=True
    ):
        assert ours.tokens == ids[: len(ours.tokens)]
        assert set(ids[len(ours.tokens) :]) <= {1}
        assert ours.score == pytest.approx(float(score), rel=1e-5)
        n_tokens = len(ours.tokens) - len(start)
        assert ours.cum_logprob == pytest.approx(ours.score * n_tokens**length_penalty)
        assert ours.finish_reason == ("stop" if ours.tokens[-1] in EOS else "length") or ignore_eos


def test_some_beams_end_early_and_some_do_not(llm: LLM) -> None:
    """Else the comparison above would say nothing about ends."""
    params = BeamSearchParams(beam_width=6, max_tokens=20)
    outputs = llm.beam_search([prompt(VARIANT, 17, seed) for seed in (1, 2)], params)
    found = {one.finish_reason for output in outputs for one in output.sequences}
    lengths = {len(one.tokens) for output in outputs for one in output.sequences}
    assert found == {"stop", "length"}
    assert len(lengths) > 3


def test_prompts_are_searched_together_as_alone(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=8)
    starts = [prompt(VARIANT, 9, 4), prompt(VARIANT, 21, 5)]
    alone = [llm.beam_search([start], params)[0] for start in starts]
    together = llm.beam_search(starts, params)
    for one, other in zip(alone, together, strict=True):
        assert [s.tokens for s in one.sequences] == [s.tokens for s in other.sequences]


def test_one_beam_is_greedy(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=1, max_tokens=6, ignore_eos=True)
    start = prompt(VARIANT, 9, 6)
    (output,) = llm.beam_search([start], params)
    with torch.inference_mode():
        ids = list(start)
        for _ in range(6):
            ids.append(int(hf_model_float64(VARIANT)(torch.tensor([ids])).logits[0, -1].argmax()))
    assert output.sequences[0].tokens == ids


def test_a_text_is_that_of_prompt_and_continuation(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=2, max_tokens=4, ignore_eos=True)
    best = llm.beam_search("The quick", params)[0].sequences[0]
    assert best.text == llm.tokenizer.decode(best.tokens)
    assert best.text.startswith("The quick")


def test_the_end_is_in_the_text_if_it_is_wanted(llm: LLM) -> None:
    start = prompt(VARIANT, 17, 2)
    plain, kept = (
        llm.beam_search(
            [start],
            BeamSearchParams(beam_width=6, max_tokens=20, include_stop_str_in_output=wanted),
        )[0].sequences
        for wanted in (False, True)
    )
    ended = next(i for i, one in enumerate(plain) if one.finish_reason == "stop")
    assert kept[ended].tokens == plain[ended].tokens
    last = llm.tokenizer.decode(plain[ended].tokens[-1:], skip_special_tokens=False)
    assert kept[ended].text == plain[ended].text + last


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 2.5}, "beam_width"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 0.7}, "temperature"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
    ],
)
def test_parameters_out_of_range_are_named(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        BeamSearchParams(**({"beam_width": 2, "max_tokens": 4} | changes))
    assert refused.value.param == param


def test_a_width_beyond_the_log_probabilities_says_what_to_set(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match=r"needs 50 log-prob.*max_logprobs=40"):
        llm.beam_search([[5]], BeamSearchParams(beam_width=18, max_tokens=4))


def test_what_cannot_fit_is_refused_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(ContextLengthError):
        llm.beam_search([[5] * 250], BeamSearchParams(beam_width=2, max_tokens=10))
    with pytest.raises(InvalidRequestError, match="BeamSearchParams"):
        llm.beam_search([[5]], {"beam_width": 2})  # type: ignore[arg-type]  # that is the point
    assert llm.beam_search([], BeamSearchParams(beam_width=2, max_tokens=4)) == []
