"""Mixtures and latent caches through the real scheduler and loop: chunks, prefix hits, preemption,
and the same tokens whatever the company.
"""

from pathlib import Path

import pytest

from engine.models import oracle
from engine.models.harness import Harness
from engine.models.variants_sparse import SPARSE

oracle.VARIANTS.update(SPARSE)
RUNS = [("mixtral", "auto"), ("deepseek-v3", "auto"), ("deepseek-v3", "naive")]
LENGTHS = (16, 37, 30)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sparse_scheduler")


def saved(variant: str, root: Path) -> Path:
    folder = root / variant
    return folder if folder.exists() else oracle.save(variant, folder)


def check(variant: str, harness: Harness, number: int, start: tuple[int, ...]) -> None:
    ids = [*start, *harness.tokens[number]]
    oracle.check(variant, start, ids, harness.recorder.logits[number])


@pytest.mark.parametrize(("variant", "form"), RUNS)
def test_chunks_and_preemption_give_transformers_tokens(
    variant: str, form: str, root: Path
) -> None:
    """Sequences grow to 80..101 tokens in a cache of 192: some must start over."""
    harness = Harness(saved(variant, root), step_tokens=12, kv_cache_tokens=192, mla_form=form)
    starts = [oracle.prompt(variant, length, seed=i) for i, length in enumerate(LENGTHS)]
    numbers = [harness.add(start) for start in starts]
    harness.finish()
    assert harness.scheduler.stats().preemptions > 0
    assert harness.recorder.mixed_steps >= 2
    for number, start in zip(numbers, starts, strict=True):
        check(variant, harness, number, start)


@pytest.mark.parametrize(("variant", "form"), RUNS)
def test_a_prefix_hit_gives_transformers_tokens(variant: str, form: str, root: Path) -> None:
    harness = Harness(saved(variant, root), mla_form=form)
    for seed, cached in ((11, 0), (12, 32)):  # with 2, two groups of experts are 2e-6 apart
        start = oracle.prompt(variant, 37, seed=seed, shared=33)
        number = harness.add(start)
        harness.finish()
        assert harness.cached[number] == cached
        check(variant, harness, number, start)
