"""Sampling: exact filters, exact distribution, reproducible draws; and the tests have teeth."""

import math

import pytest
import torch

from yaie_kernels import sample
from yaie_kernels.reference.sampling import sample as sampling

DRAWS = 40_000


def draw(
    logits: torch.Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: torch.Tensor | None = None,
    position: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = logits.shape[0]
    ids, _, _ = sample(
        logits,
        torch.full((rows,), temperature),
        torch.full((rows,), top_k, dtype=torch.int32),
        torch.full((rows,), top_p),
        torch.full((rows,), min_p),
        torch.zeros(rows, dtype=torch.int64) if seed is None else seed,
        torch.arange(rows) if position is None else position,
    )
    return ids


def kept_tokens(logits: torch.Tensor, **filters: float) -> torch.Tensor:
    """Tokens that the filters leave, in float64 and from the textbook."""
    temperature = filters.get("temperature", 1.0)
    p = torch.softmax(logits.double() / temperature, -1)
    if filters.get("top_k"):
        least = p.sort(descending=True).values[filters["top_k"] - 1]
        p = torch.where(p >= least, p, 0.0)
    p /= p.sum()
    if filters.get("top_p", 1.0) < 1:
        ranked, order = p.sort(descending=True)
        before = ranked.cumsum(0) - ranked
        p[order[before >= filters["top_p"]]] = 0.0
    p[p < filters.get("min_p", 0.0) * p.max()] = 0.0
    return p / p.sum()


def chi_square(ids: torch.Tensor, p: torch.Tensor) -> float:
    """z-score of Pearson's statistic (Wilson and Hilferty), cells of small expectation pooled."""
    counts = torch.bincount(ids, minlength=len(p)).double()
    expected = p * len(ids)
    large = expected >= 10
    seen = torch.cat([counts[large], counts[~large].sum()[None]])
    want = torch.cat([expected[large], expected[~large].sum()[None]])
    if want[-1] < 1e-9:
        assert seen[-1] == 0, "a token that the filters drop was drawn"
        seen, want = seen[:-1], want[:-1]
    freedom = max(1, len(want) - 1)
    spread = 2 / (9 * freedom)
    statistic = float(((seen - want) ** 2 / want).sum())
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


CASES = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.8},
    {"top_k": 7},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
]


@pytest.mark.parametrize("filters", CASES, ids=str)
def test_draws_follow_the_distribution(filters: dict[str, float]) -> None:
    logits = torch.randn(101) * 2
    ids = draw(logits.expand(DRAWS, -1), **filters)
    assert abs(chi_square(ids, kept_tokens(logits, **filters))) < 4


FAULTS = {
    "temperature ignored": ({"temperature": 1.2}, {}),
    "one token of top-k lost": ({"top_k": 7}, {"top_k": 6}),
    "top-p too generous": ({"top_p": 0.8}, {"top_p": 0.85}),
    "min-p ignored": ({"min_p": 0.1}, {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_statistic_catches_a_wrong_filter(fault: str) -> None:
    want, used = FAULTS[fault]
    logits = torch.randn(101) * 2
    ids = draw(logits.expand(DRAWS, -1), **used)
    try:
        score = chi_square(ids, kept_tokens(logits, **want))
    except AssertionError:
        return  # drew what must never be drawn
    assert abs(score) > 8


def test_the_statistic_catches_an_off_by_one_in_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(101) * 2
    right = torch.searchsorted
    monkeypatch.setattr(torch, "searchsorted", lambda *a, **k: (right(*a, **k) + 1).clamp(max=100))
    assert abs(chi_square(draw(logits.expand(DRAWS, -1)), kept_tokens(logits))) > 8


def test_the_statistic_catches_a_draw_that_ignores_the_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = sampling.targets
    monkeypatch.setattr(
        sampling, "targets", lambda seed, position, total: right(seed, position // 200, total)
    )
    logits = torch.randn(101) * 2
    assert abs(chi_square(draw(logits.expand(DRAWS, -1)), kept_tokens(logits))) > 8


def test_neighbouring_seeds_and_positions_draw_independently() -> None:
    """Pairs of draws fill the product distribution, over positions and over seeds."""
    logits = torch.randn(12)
    p = kept_tokens(logits)
    count = torch.arange(DRAWS)
    for seed, position in ((count * 0 + 5, count), (count, count * 0 + 5)):
        ids = draw(logits.expand(DRAWS, -1), seed=seed, position=position)
        pairs = ids[:-1] * 12 + ids[1:]
        assert abs(chi_square(pairs[::2], torch.outer(p, p).flatten())) < 4


def test_weights_are_the_softmax_to_float32_precision() -> None:
    logits = torch.randn(50, 1000) * 3
    temperature = torch.rand(50) + 0.3
    weights = sampling.token_weights(logits, temperature)
    assert (weights.amax(-1) == 2**40).all()
    got = weights.double() / weights.sum(-1, keepdim=True)
    want = torch.softmax(logits.double() / temperature.double()[:, None], -1)
    likely = want > 1e-6
    assert ((got - want).abs() / want)[likely].max() < 3e-6
    assert (got - want).abs().max() < 1e-6


def test_exactly_these_tokens_remain() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, -1.0, 0.0]]).expand(3000, -1)
    assert set(draw(logits, top_k=1).tolist()) == {1, 2}, "ties with the last kept are kept"
    assert set(draw(logits, top_k=3).tolist()) == {1, 2, 3}
    assert set(draw(logits, top_p=0.01).tolist()) == {1, 2}
    assert set(draw(logits, min_p=0.3).tolist()) == {1, 2, 3}
    assert set(draw(logits, min_p=1.0).tolist()) == {1, 2}
    assert set(draw(logits, temperature=0.01).tolist()) == {1, 2}


def test_top_p_counts_the_mass_left_by_top_k() -> None:
    """P = .5 .3 .2: top_k 2 leaves .625 and .375, so top_p .6 keeps one; alone it keeps two."""
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(3000, -1)
    assert set(draw(logits, top_k=2, top_p=0.6).tolist()) == {0}
    assert set(draw(logits, top_p=0.6).tolist()) == {0, 1}


def test_top_p_looks_past_the_first_candidates() -> None:
    """A flat distribution needs more than the few hundred that are ranked first."""
    logits = torch.zeros(4000, 1000) + torch.linspace(0, 0.01, 1000)
    ids = draw(logits, top_p=0.9)
    assert ids.min() >= 100 - 5
    assert len(set(ids.tolist())) > 800


def test_greedy_takes_the_lowest_id_of_a_tie_even_beside_sampled_rows() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0, 1.0]]).expand(4, -1)
    temperature = torch.tensor([0.0, 1.0, 0.0, 1e-6])
    none = torch.zeros(4)
    zeros = none.long()
    ids, _, _ = sample(logits, temperature, none.int(), none + 1, none, zeros, torch.arange(4))
    assert ids[[0, 2, 3]].tolist() == [1, 1, 1]
    assert draw(logits, temperature=0.0).tolist() == [1, 1, 1, 1]


def test_a_row_draws_the_same_in_any_batch() -> None:
    logits = torch.randn(40, 300) * 2
    temperature = torch.rand(40) * 1.5
    top_k = torch.randint(0, 9, (40,), dtype=torch.int32)
    top_p, min_p = torch.rand(40) * 0.5 + 0.5, torch.rand(40) * 0.1
    seed, position = torch.randint(-(2**62), 2**62, (2, 40))
    rows = (logits, temperature, top_k, top_p, min_p, seed, position)
    together = sample(*rows)[0]
    order = torch.randperm(40)
    assert torch.equal(sample(*(part[order] for part in rows))[0], together[order])
    for row in range(40):
        assert torch.equal(sample(*(part[[row]] for part in rows))[0], together[[row]])


def test_masked_tokens_are_never_drawn() -> None:
    logits = torch.randn(5000, 50)
    logits[:, ::2] = float("-inf")
    assert (draw(logits) % 2 == 1).all()


def test_the_callers_tensors_are_left_alone() -> None:
    logits = torch.randn(3, 50)
    before = logits.clone()
    draw(logits, top_k=3, top_p=0.5, min_p=0.1)
    assert torch.equal(logits, before)


def test_an_empty_batch_gives_no_ids() -> None:
    assert draw(torch.empty(0, 10)).shape == (0,)
