"""Each family through the real scheduler and loop: right, and the same whatever the company."""

from pathlib import Path

import pytest

from engine.models.harness import Harness
from engine.models.oracle import check, prompt, save
from engine.models.variants import ONE_EACH
from yaie.core.request import SamplingParams

LENGTHS = (16, 37, 1, 23)
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=15, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.7, top_k=9, seed=6, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True),
]


@pytest.fixture(scope="module", params=ONE_EACH)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def folder(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(variant, tmp_path_factory.mktemp(variant))


def prompts(variant: str) -> list[tuple[int, ...]]:
    """Four prompts; the second and the last begin alike."""
    return [prompt(variant, length, seed=i, shared=length // 2) for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def expected(variant: str, folder: Path) -> list[list[int]]:
    """What the four requests give when each runs alone."""
    harness = Harness(folder, prefix_caching=False)
    pairs = zip(prompts(variant), PARAMS, strict=True)
    return [harness.run([ids], [sampling])[0] for ids, sampling in pairs]


def assert_right(variant: str, harness: Harness, number: int, start: tuple[int, ...]) -> None:
    logits = harness.recorder.logits[number]
    check(variant, start, [*start, *harness.tokens[number]], logits)


def test_chunks_and_preemption_give_transformers_tokens(variant: str, folder: Path) -> None:
    """Sequences grow to 65..101 tokens in a cache of 192: some must start over."""
    harness = Harness(folder, step_tokens=12, kv_cache_tokens=192)
    numbers = {harness.add(ids): ids for ids in prompts(variant)}
    harness.finish()
    assert harness.scheduler.stats().preemptions > 0
    assert harness.recorder.mixed_steps >= 2
    for number, start in numbers.items():
        assert_right(variant, harness, number, start)


def test_a_prefix_hit_gives_transformers_tokens(variant: str, folder: Path) -> None:
    harness = Harness(folder)
    first, second = (prompt(variant, 37, seed=seed, shared=33) for seed in (1, 2))
    harness.add(first)
    harness.finish()
    number = harness.add(second)
    harness.finish()
    assert harness.cached[number] == 32
    assert_right(variant, harness, number, second)


def test_the_order_of_a_batch_changes_nothing(
    variant: str, folder: Path, expected: list[list[int]]
) -> None:
    turned = Harness(folder).run(prompts(variant)[::-1], PARAMS[::-1])
    assert turned[::-1] == expected


def test_the_size_of_chunks_changes_nothing(
    variant: str, folder: Path, expected: list[list[int]]
) -> None:
    assert Harness(folder, step_tokens=5).run(prompts(variant), PARAMS) == expected


def test_a_warm_cache_changes_nothing(
    variant: str, folder: Path, expected: list[list[int]]
) -> None:
    harness = Harness(folder)
    assert harness.run(prompts(variant), PARAMS) == expected
    cold = harness.recorder.steps
    assert harness.run(prompts(variant), PARAMS) == expected
    assert harness.cached[5] == 32
    assert harness.recorder.steps < 2 * cold + 1


def test_an_aborted_neighbour_changes_nothing(
    variant: str, folder: Path, expected: list[list[int]]
) -> None:
    harness = Harness(folder, step_tokens=20, kv_cache_tokens=160)
    neighbours = [harness.add(prompt(variant, 40, seed=seed)) for seed in (8, 9)]
    numbers = [harness.add(*each) for each in zip(prompts(variant), PARAMS, strict=True)]
    for _ in range(9):
        harness.loop.step()
    assert 0 < len(harness.tokens[neighbours[0]]) < 64
    for neighbour in neighbours:
        harness.abort(neighbour)
    harness.finish()
    assert [harness.tokens[number] for number in numbers] == expected
