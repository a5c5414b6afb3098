"""Expectations of step times, fed with made-up steps."""

import random

import pytest

from yaie.core.batch import Batch, Row
from yaie.runtime.loop.step_cost import StepCosts, StepShape


def chunk(decodes: int, tokens: int, position: int = 0) -> StepShape:
    return StepShape(decodes, 1, tokens, tokens * (position + tokens // 2))


def launched(tokens: int) -> float:
    """A step that takes 8 ms however few its tokens are, and 4 us for each beyond 1,000."""
    return 8e-3 + 4e-6 * max(0, tokens - 1000)


def test_a_load_counts_what_a_batch_computes() -> None:
    rows = (
        Row(0, 0, 0, 40, 1, (), True),
        Row(1, 1, 0, 50, 1, (), True),
        Row(2, 2, 0, 100, 4, (1, 2, 3, 4), False),
        Row(3, 3, 0, 0, 2, (1, 2), True),
    )
    assert StepShape.of(Batch(0, (), (), (), (), rows)) == StepShape(2, 2, 6, 4 * 102 + 2 * 1)


def test_nothing_is_expected_before_a_step_was_measured() -> None:
    costs = StepCosts()
    assert costs.seconds(chunk(4, 64)) is None
    costs.observe(StepShape(4), 0.01)
    assert costs.seconds(StepShape(4)) == pytest.approx(0.01)
    assert costs.seconds(chunk(4, 64)) is None, "decodes do not say what prefill takes"


def test_tokens_below_the_launch_floor_are_found_to_be_free() -> None:
    costs = StepCosts()
    for tokens in (64, 512, 1024, 4096):
        for _ in range(10):
            costs.observe(chunk(8, tokens), launched(tokens))
    for tokens in (64, 200, 512, 800, 3000, 4096):
        assert costs.seconds(chunk(8, tokens)) == pytest.approx(launched(tokens), rel=0.05)


def test_beyond_the_largest_step_time_grows_at_most_in_proportion() -> None:
    costs = StepCosts()
    costs.observe(chunk(8, 92), 0.01)
    assert costs.seconds(chunk(8, 392)) == pytest.approx(0.04)


def test_what_is_known_beside_other_decodes_is_carried_over() -> None:
    costs = StepCosts()
    for tokens in (0, 64, 512, 2048):
        costs.observe(chunk(8, tokens) if tokens else StepShape(8), 2e-3 + 4e-6 * tokens)
    assert costs.seconds(chunk(100, 420)) == pytest.approx(2e-3 + 4e-6 * 512, rel=0.05)
    costs.observe(StepShape(100), 5e-3)
    assert costs.seconds(chunk(100, 512)) == pytest.approx(5e-3 + 4e-6 * 512, rel=0.1)


@pytest.mark.parametrize("size", [64, 512, 2048])
def test_one_very_slow_step_is_forgotten(size: int) -> None:
    costs = StepCosts()
    for _ in range(3):
        costs.observe(chunk(8, size), launched(size))
    costs.observe(chunk(8, size), 5.0)
    for _ in range(10):
        costs.observe(chunk(8, size), launched(size))
    assert costs.seconds(chunk(8, size)) == pytest.approx(launched(size), rel=0.2)


def test_a_size_that_was_once_slow_is_corrected_by_smaller_ones() -> None:
    costs = StepCosts()
    for tokens in (512, 1024):
        costs.observe(chunk(8, tokens), 1.0)
    for _ in range(30):
        costs.observe(chunk(8, 512), launched(512))
    expected = costs.seconds(chunk(8, 1024))
    assert expected is not None
    assert expected <= 2 * launched(512) * 1.05


def test_attention_to_earlier_positions_comes_on_top() -> None:
    costs = StepCosts(context_weight=1e-3)
    for tokens in (100, 1000, 4000) * 20:
        load = chunk(8, tokens)
        costs.observe(load, 1e-3 + 1e-5 * (load.size + 1e-3 * load.context))
    late = chunk(8, 500, position=2000)
    exact = 1e-3 + 1e-5 * (508 + 1e-3 * late.context)
    assert costs.seconds(late) == pytest.approx(exact, rel=0.1)


def test_expectations_grow_with_prefill_whatever_was_measured() -> None:
    """Whatever the noise: more tokens never take less time, nor more than in proportion."""
    rng = random.Random(0)
    for _ in range(50):
        costs = StepCosts()
        for _ in range(rng.randrange(1, 60)):
            costs.observe(chunk(rng.randrange(1, 300), rng.randrange(1, 9000)), rng.random())
        decodes = rng.randrange(1, 300)
        times = [costs.seconds(chunk(decodes, tokens)) for tokens in range(1, 9000, 97)]
        known = [seconds for seconds in times if seconds is not None]
        assert len(known) == len(times)
        assert min(known) > 0
