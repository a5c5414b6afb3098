"""Sampling as served by the runner: reproducible in any batch, contained."""

import pytest
import torch

from engine.models.hand import Hand, load_runner
from engine.models.oracle import save
from yaie.core.request import SamplingParams
from yaie.runtime.sampling import sampler
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.worker.runner import ModelRunner

PROMPT = (5, 6, 7, 8, 9)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return load_runner(save("llama-gqa", tmp_path_factory.mktemp("model")))


def generate(
    runner: ModelRunner, seed: int, sampling: SamplingParams, neighbours: int = 0, slot: int = 0
) -> list[int]:
    """Ten tokens of one sequence, in `slot`, among `neighbours` others."""
    hand = Hand(runner)
    others = [n for n in range(neighbours + 1) if n != slot][:neighbours]
    for number in others:
        hand.start(number, range(3, 10 + number), sampling=sampling, seed=1000 + number)
        hand.step({number: 7 + number})
    hand.start(slot, PROMPT, sampling=sampling, seed=seed)
    hand.step({**dict.fromkeys(others, 1), slot: len(PROMPT)})
    hand.decode(*others, slot, steps=9)
    return hand.tokens[slot][len(PROMPT) :]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=20),
        SamplingParams(temperature=1.3, top_p=0.8),
        SamplingParams(temperature=1.0, min_p=0.05),
    ],
    ids=["plain", "top_k", "top_p", "min_p"],
)
def test_a_seed_gives_the_same_tokens_whatever_the_batch(
    runner: ModelRunner, sampling: SamplingParams
) -> None:
    alone = generate(runner, 42, sampling)
    assert generate(runner, 42, sampling, neighbours=5, slot=3) == alone
    assert generate(runner, 42, sampling, neighbours=2, slot=0) == alone


def test_other_seeds_give_other_tokens(runner: ModelRunner) -> None:
    sampling = SamplingParams(temperature=2.0)
    answers = {tuple(generate(runner, seed, sampling)) for seed in (0, 1, -1, 2**63 - 1, -(2**63))}
    assert len(answers) == 5


def test_greedy_and_sampled_rows_share_a_batch(runner: ModelRunner) -> None:
    greedy = SamplingParams(temperature=0.0)
    alone = generate(runner, 0, greedy)
    hand = Hand(runner)
    hand.start(0, PROMPT, sampling=SamplingParams(temperature=1.5), seed=1)
    hand.start(1, PROMPT, sampling=greedy)
    hand.step({0: 5, 1: 5})
    hand.decode(0, 1, steps=9)
    assert hand.tokens[1][5:] == alone
    assert hand.tokens[0][5:] != alone


@pytest.mark.parametrize("greedy", [True, False])
def test_rows_that_are_not_finite_are_flagged_and_harm_nobody(greedy: bool) -> None:
    slots = Slots(4, 1, torch.device("cpu"))
    slots.temperature.fill_(0.0 if greedy else 1.0)
    slots.top_p.fill_(1.0)
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(3))
    rows, positions = torch.arange(4), torch.arange(4)
    clean = sampler.draw(
        logits.clone(), slots, rows, positions, how="greedy" if greedy else "plain"
    )
    logits[1] = torch.nan
    logits[2] = -torch.inf
    logits[3, 4] = torch.inf
    spoiled = sampler.draw(logits, slots, rows, positions, how="greedy" if greedy else "plain")
    assert clean.finite.tolist() == [True] * 4
    assert spoiled.finite.tolist() == [True, False, False, False]
    assert spoiled.tokens[0] == clean.tokens[0]
    assert spoiled.tokens[1:].tolist() == [0, 0, 0]
