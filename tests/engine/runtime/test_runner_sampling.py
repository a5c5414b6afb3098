"""Sampling as served by the runner: reproducible in any batch, exact in distribution, contained."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch

import yaie_kernels
from engine.models.hand import Hand, load_runner
from engine.models.oracle import save
from yaie.core.request import SamplingParams
from yaie.runtime import sampler
from yaie.runtime.runner import ModelRunner
from yaie.runtime.slots import Slots

DRAWS = 20_000
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


LOGITS = torch.tensor([2.0, 1.5, 1.5, 0.5, 0.0, -0.5, -1.0, -3.0])


def kept(probabilities: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The target distribution, written plainly: temperature, then top-k, top-p, min-p."""
    order = probabilities.argsort(descending=True, stable=True)
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if sampling.top_k:
        keep &= probabilities >= probabilities[order[sampling.top_k - 1]]
    within = torch.where(keep, probabilities, 0.0)
    mass = within / within.sum()
    before = mass[order].cumsum(0) - mass[order]
    threshold = mass[order][before < sampling.top_p - 1e-9][-1]
    keep &= mass >= threshold
    keep &= probabilities >= sampling.min_p * probabilities.max()
    final = torch.where(keep, probabilities, 0.0)
    return final / final.sum()


def drawn(sampling: SamplingParams) -> Counter[int]:
    """Token counts of DRAWS draws, one per seed, from LOGITS."""
    slots = Slots(1, 1, torch.device("cpu"))
    rows = torch.zeros(DRAWS, dtype=torch.int64)
    slots.temperature[0] = sampling.temperature
    slots.top_k[0], slots.top_p[0], slots.min_p[0] = sampling.top_k, sampling.top_p, sampling.min_p
    slots.seed = torch.arange(DRAWS)
    batch = slots_of_each_row(slots)
    tokens = sampler.draw(
        LOGITS.expand(DRAWS, -1).contiguous(), batch, torch.arange(DRAWS), rows, greedy=False
    ).tokens
    return Counter(tokens.tolist())


def slots_of_each_row(slots: Slots) -> Slots:
    """The one slot's parameters repeated for every draw; seeds differ."""
    for name in ("temperature", "top_k", "top_p", "min_p"):
        setattr(slots, name, getattr(slots, name)[0].repeat(DRAWS))
    slots.last_token = torch.zeros(DRAWS, dtype=torch.int64)
    return slots


def chi_square_fails(counts: Counter[int], expected: torch.Tensor) -> bool:
    """Whether the counts are implausible: a token that must not occur, or p < 1e-6."""
    if any(count and expected[token] == 0 for token, count in counts.items()):
        return True
    likely = [i for i, p in enumerate(expected.tolist()) if p > 0]
    statistic = sum(
        (counts[i] - DRAWS * expected[i].item()) ** 2 / (DRAWS * expected[i].item()) for i in likely
    )
    # 1 - 1e-6 quantiles of chi-square for 1..7 degrees of freedom.
    bounds = (0.0, 23.93, 27.63, 30.66, 33.38, 35.89, 38.26, 40.52)
    return statistic > bounds[len(likely) - 1]


CASES = {
    "plain": SamplingParams(temperature=1.0),
    "hot": SamplingParams(temperature=2.0),
    "cold": SamplingParams(temperature=0.5),
    "top_k": SamplingParams(temperature=1.0, top_k=4),
    "top_k_of_ties": SamplingParams(temperature=1.0, top_k=2),
    "top_p": SamplingParams(temperature=1.0, top_p=0.9),
    "min_p": SamplingParams(temperature=1.0, min_p=0.2),
    "all": SamplingParams(temperature=1.2, top_k=6, top_p=0.9, min_p=0.1),
}


@pytest.mark.parametrize("case", CASES)
def test_draws_follow_the_distribution(case: str) -> None:
    sampling = CASES[case]
    expected = kept((LOGITS / sampling.temperature).softmax(0), sampling)
    assert not chi_square_fails(drawn(sampling), expected)


def drop_the_token_that_crosses(sample: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A classic fault: top-p without the token that reaches the mass."""

    def faulty(logits: torch.Tensor, t: object, k: object, top_p: torch.Tensor, *rest: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
        ranked, order = logits[0].softmax(0).sort(descending=True)
        dropped = order[(ranked.cumsum(0) >= top_p[0])]
        logits = logits.clone()
        logits[:, dropped] = -torch.inf
        return sample(logits, t, k, torch.ones_like(top_p), *rest)

    return faulty


def test_the_chi_square_catches_a_seeded_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = CASES["top_p"]
    expected = kept(LOGITS.softmax(0), sampling)
    monkeypatch.setattr(yaie_kernels, "sample", drop_the_token_that_crosses(yaie_kernels.sample))
    assert chi_square_fails(drawn(sampling), expected)


@pytest.mark.parametrize("greedy", [True, False])
def test_rows_that_are_not_finite_are_flagged_and_harm_nobody(greedy: bool) -> None:
    slots = Slots(4, 1, torch.device("cpu"))
    slots.temperature.fill_(0.0 if greedy else 1.0)
    slots.top_p.fill_(1.0)
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(3))
    rows, positions = torch.arange(4), torch.arange(4)
    clean = sampler.draw(logits.clone(), slots, rows, positions, greedy=greedy)
    logits[1] = torch.nan
    logits[2] = -torch.inf
    logits[3, 4] = torch.inf
    spoiled = sampler.draw(logits, slots, rows, positions, greedy=greedy)
    assert clean.finite.tolist() == [True] * 4
    assert spoiled.finite.tolist() == [True, False, False, False]
    assert spoiled.tokens[0] == clean.tokens[0]
    assert spoiled.tokens[1:].tolist() == [0, 0, 0]
