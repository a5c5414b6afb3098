"""Mixtures and latent attention against transformers: logits within the ratio gate, greedy tokens
identical, in every form of latent attention.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models import oracle
from engine.models.hand import load_runner
from engine.models.journey import PAGES, SEQUENCES, Traveller, travel
from engine.models.variants_sparse import EXPERT_NAMES, LATENT_NAMES, SPARSE
from yaie.layers import mla_forms, moe
from yaie.model_config.moe import MLAForm

oracle.VARIANTS.update(SPARSE)
FORMS: tuple[MLAForm, ...] = ("absorbed", "latent", "naive")
RUNS = [(name, FORMS[0]) for name in EXPERT_NAMES]
RUNS += [(name, form) for name in LATENT_NAMES for form in FORMS]


class Journeys:
    """One run of each variant and form, shared by the tests of its sequences.

    `doubtful`: how many of a run's tokens would have chosen other experts, had the router's logits
    been off by 2e-6 of their size, which is many roundings of float32.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.doubtful: dict[tuple[str, MLAForm], int] = {}
        self.of = cache(self._run)
        self.saved = cache(self._save)

    def _run(self, variant: str, form: MLAForm) -> dict[str, Traveller]:
        runner = load_runner(self.saved(variant), pages=PAGES, mla_form=form)
        route = moe.ops.route_experts
        noise = torch.Generator().manual_seed(0)
        self.doubtful[variant, form] = 0

        def watched(logits: torch.Tensor, bias: torch.Tensor | None, **rule: Any) -> Any:
            experts, shares = route(logits, bias, **rule)
            off = 2e-6 * logits.abs().max() * torch.randn(logits.shape, generator=noise)
            other = route(logits + off, bias, **rule)[0]
            changed = (experts.sort(-1).values != other.sort(-1).values).any(-1)
            self.doubtful[variant, form] += int(changed.sum())
            return experts, shares

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moe.ops, "route_experts", watched)
            return travel(variant, runner)

    def _save(self, variant: str) -> Path:
        return oracle.save(variant, self.folder / variant)


@pytest.fixture(scope="module")
def journeys(tmp_path_factory: pytest.TempPathFactory) -> Journeys:
    return Journeys(tmp_path_factory.mktemp("sparse"))


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize(("variant", "form"), RUNS)
def test_a_sequence_matches(journeys: Journeys, variant: str, form: MLAForm, sequence: str) -> None:
    one = journeys.of(variant, form)[sequence]
    oracle.check(variant, one.start, one.ids, one.logits)


@pytest.mark.parametrize("variant", LATENT_NAMES)
def test_the_forms_agree(journeys: Journeys, variant: str) -> None:
    """Not only with transformers: with each other, token by token."""
    absorbed, latent, naive = (journeys.of(variant, form) for form in FORMS)
    for name in SEQUENCES:
        assert absorbed[name].ids == latent[name].ids == naive[name].ids


@pytest.mark.parametrize("form", ["absorbed", "latent"])
def test_long_chunks_and_many_rows_are_expanded_in_pieces(
    journeys: Journeys, form: MLAForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 16 queries count as long here, and 96 tokens as many."""
    monkeypatch.setattr(mla_forms, "EXPAND_FROM", 16)
    monkeypatch.setattr(mla_forms, "EXPANDED_TOKENS", 96)
    variant = "deepseek-v3"
    runner = load_runner(journeys.saved(variant), pages=PAGES, mla_form=form)
    for one in travel(variant, runner).values():
        oracle.check(variant, one.start, one.ids, one.logits)


@pytest.mark.parametrize(("variant", "form"), RUNS)
def test_no_choice_hangs_on_rounding(journeys: Journeys, variant: str, form: MLAForm) -> None:
    """Otherwise two right computations could choose differently, and comparing means nothing."""
    journeys.of(variant, form)
    assert journeys.doubtful[variant, form] == 0
