"""Draws follow the distribution that the parameters define: chi-square over 64 tokens, alpha 1e-4.

200,000 draws a configuration. The draws are a fixed function of seed and position, so a test that
passes today passes always; the faults at the end show that it can fail.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import yaie_kernels
from yaie.core.batch import SlotInit
from yaie.core.request import SamplingParams
from yaie.runtime.sampling.metadata import mask_of
from yaie.runtime.sampling.sampler import PendingDraw, RowMasks, Sampler
from yaie.runtime.tensors.device_slots import Slots

VOCAB, DRAWS, ALPHA = 64, 200_000, 1e-4
PIECE = 2_000
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(4)) * 1.5
LOGITS[30:32] = LOGITS[7].item()  # ties
PROMPT, OUTPUT = (1, 4, 9, 9, 30), (4, 7, 7, 63, 7)
EVEN = tuple(range(0, VOCAB, 2))

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "hot": {"temperature": 2.0},
    "cold": {"temperature": 0.4},
    "top_k": {"top_k": 11},
    "top_k of one": {"top_k": 1},
    "top_p": {"top_p": 0.9},
    "narrow top_p": {"top_p": 0.2},
    "min_p": {"min_p": 0.15},
    "filters": {"temperature": 1.3, "top_k": 40, "top_p": 0.92, "min_p": 0.02},
    "repetition": {"repetition_penalty": 1.5},
    "frequency and presence": {"frequency_penalty": 0.5, "presence_penalty": 0.8},
    "bias": {"logit_bias": {3: 2.5, 60: -1.5, 7: -100.0}},
    "allowed": {"allowed_token_ids": (3, 7, 30, 31, 40, 63)},
    "bad words": {"bad_words_ids": ((3,), (63, 7, 12), (7, 30), (8, 40))},
    "min tokens": {"min_tokens": 9},
    "mask": {"grammar": True},
    "all": {
        "temperature": 0.8, "top_k": 30, "top_p": 0.95, "min_p": 0.01, "grammar": True,
        "repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": -0.5,
        "logit_bias": {2: 2.0, 12: 1.0}, "bad_words_ids": ((7, 4), (30,)), "min_tokens": 9,
    },
}  # fmt: skip


def logits_of(case: dict[str, Any]) -> torch.Tensor:
    """The processed logits in float64, plainly."""
    x = LOGITS.double()
    for token in range(VOCAB):
        if token in (*PROMPT, *OUTPUT):
            penalty = case.get("repetition_penalty", 1.0)
            x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
        x[token] -= case.get("frequency_penalty", 0.0) * OUTPUT.count(token)
        x[token] -= case.get("presence_penalty", 0.0) * (token in OUTPUT)
        x[token] += case.get("logit_bias", {}).get(token, 0.0)
        ban = token not in case.get("allowed_token_ids", range(VOCAB))
        ban |= bool(case.get("grammar")) and token not in EVEN
        ban |= bool(case.get("min_tokens")) and token in {0, 63}
        text = (*OUTPUT, token)
        ban |= any(text[-len(w) :] == w for w in case.get("bad_words_ids", ()))
        if ban:
            x[token] = -torch.inf
    return x / case.get("temperature", 1.0)


def distribution(case: dict[str, Any]) -> torch.Tensor:
    """What draws must follow: the textbook's top-k, top-p and min-p in float64, ties kept."""
    p = logits_of(case).softmax(0)
    if case.get("top_k"):
        p = p * (p >= p.sort(descending=True).values[case["top_k"] - 1] * (1 - 1e-9))
        p /= p.sum()
    if case.get("top_p", 1.0) < 1:
        ranked = p.sort(descending=True).values
        last = ranked[(ranked.cumsum(0) - ranked) < case["top_p"]][-1]
        p = p * (p >= last * (1 - 1e-9))
    p = p * (p >= case.get("min_p", 0.0) * p.max())
    return p / p.sum()


def counts_of(case: dict[str, Any]) -> torch.Tensor:
    """How often each token comes up in DRAWS draws at different positions of one sequence."""
    given = {name: value for name, value in case.items() if name != "grammar"}
    sampling = SamplingParams(**given, max_tokens=100)
    slots = Slots(2, 1, torch.device("cpu"))
    sampler = Sampler(slots, VOCAB, torch.device("cpu"))
    init = SlotInit(1, 0, sampling, 99, ((),), (0, 63), len(PROMPT), (PROMPT, OUTPUT))
    sampler.start([init])
    slots.temperature[1], slots.top_k[1] = sampling.temperature, sampling.top_k
    slots.top_p[1], slots.min_p[1], slots.seed[1] = sampling.top_p, sampling.min_p, 99
    next_position = np.array([len(PROMPT) + len(OUTPUT)], dtype=np.int32)
    one = sampler.requested.plan(np.array([1], dtype=np.int32), next_position)
    plan = one._replace(slots=one.slots.repeat(PIECE), wanted=one.wanted.repeat(PIECE))
    masks = None
    if case.get("grammar"):
        words = mask_of(EVEN, VOCAB, allowed=True)
        masks = RowMasks(np.arange(PIECE, dtype=np.int32), np.tile(words, (PIECE, 1)))
    rows, logits = torch.ones(PIECE, dtype=torch.int64), LOGITS.expand(PIECE, -1)
    counts = torch.zeros(VOCAB, dtype=torch.int64)
    clean = _tables(sampler)
    for first in range(0, DRAWS, PIECE):
        for table, value in clean:
            table.copy_(value)  # each draw is the sixth of the output, not one more
        # 32 positions on, the remembered tokens stand in the same columns
        position = 32 * torch.arange(first, first + PIECE) + int(next_position[0])
        drawn = sampler.draw(PendingDraw(logits, rows, position), plan, masks)
        counts += drawn.tokens.bincount(minlength=VOCAB)
    return counts


def _tables(sampler: Sampler) -> list[tuple[torch.Tensor, torch.Tensor]]:
    state = sampler.state
    return [(t, t.clone()) for t in (state.seen, state.recent) if t is not None]


def p_value(counts: torch.Tensor, p: torch.Tensor) -> float:
    """Probability of counts this unlikely or worse; tokens of small expectation are pooled."""
    if counts[p == 0].any():
        return 0.0
    expected = p * counts.sum()
    large = expected >= 5
    seen = torch.cat([counts[large].double(), counts[~large].sum().double()[None]])
    want = torch.cat([expected[large], expected[~large].sum()[None]])
    if want[-1] < 5:  # too few to be a cell of their own
        seen, want = seen[:-1], want[:-1]
    if len(want) < 2:
        return 1.0
    statistic = ((seen - want) ** 2 / want).sum()
    freedom = torch.tensor((len(want) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


@pytest.mark.parametrize("case", CASES)
def test_draws_follow_the_distribution(case: str) -> None:
    counts = counts_of(CASES[case])
    assert counts.sum() == DRAWS
    assert p_value(counts, distribution(CASES[case])) > ALPHA


Sample = Callable[..., torch.Tensor]


def without_the_token_that_crosses(sample: Sample) -> Sample:
    """A classic fault: top-p without the token that reaches the mass."""

    def faulty(
        logits: torch.Tensor,
        t: object,
        k: object,
        top_p: torch.Tensor,
        *rest: object,
        rows: torch.Tensor,
        **options: bool,
    ) -> torch.Tensor:
        ranked, order = logits[0].softmax(0).sort(descending=True)
        logits = logits.clone()
        logits[:, order[ranked.cumsum(0) >= top_p[rows[0]]]] = -torch.inf
        return sample(logits, t, k, torch.ones_like(top_p), *rest, rows=rows, **options)

    return faulty


def with_min_p_of_the_whole(sample: Sample) -> Sample:
    """Another: min-p against the total mass instead of the most likely token."""

    def faulty(
        logits: torch.Tensor,
        t: object,
        k: object,
        p: object,
        min_p: torch.Tensor,
        *rest: object,
        rows: torch.Tensor,
        **options: bool,
    ) -> torch.Tensor:
        least = min_p[rows].unsqueeze(1)
        logits = logits.masked_fill(logits.softmax(-1) < least, -torch.inf)
        return sample(logits, t, k, p, torch.zeros_like(min_p), *rest, rows=rows, **options)

    return faulty


@pytest.mark.parametrize(
    ("case", "fault"),
    [("top_p", without_the_token_that_crosses), ("min_p", with_min_p_of_the_whole)],
)
def test_the_chi_square_catches_a_fault(
    case: str, fault: Callable[[Sample], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaie_kernels, "sample", fault(yaie_kernels.sample))
    assert p_value(counts_of(CASES[case]), distribution(CASES[case])) < ALPHA


@pytest.mark.parametrize(
    ("wanted", "used"),
    [
        ({"frequency_penalty": 0.5}, {"frequency_penalty": 0.5, "presence_penalty": 0.3}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.3}),
        ({"temperature": 1.0}, {"temperature": 1.02}),
        ({"logit_bias": {3: 2.5}}, {"logit_bias": {3: 2.7}}),
        ({"top_k": 11}, {"top_k": 12}),
    ],
    ids=str,
)
def test_the_chi_square_catches_a_slight_shift(
    wanted: dict[str, Any], used: dict[str, Any]
) -> None:
    assert p_value(counts_of(used), distribution(wanted)) < ALPHA
