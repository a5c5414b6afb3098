"""How fast prompts come in, on a clock that the test moves."""

import pytest

from yaie.core.queues.prompt_rate import PromptRate


def test_a_steady_stream_is_measured() -> None:
    rate = PromptRate(window_s=5.0)
    for number in range(400):
        rate.arrived(number / 20, 500)
    assert rate.per_second(20.0) == pytest.approx(10_000, rel=0.05)


def test_what_was_cached_does_not_count() -> None:
    rate = PromptRate(window_s=5.0)
    for number in range(400):
        rate.arrived(number / 20, 500)
        rate.admitted(500, 400)
    assert rate.per_second(20.0) == pytest.approx(2_000, rel=0.05)


def test_a_burst_is_spread_over_the_window_and_forgotten() -> None:
    rate = PromptRate(window_s=5.0)
    for _ in range(200):
        rate.arrived(1.0, 500)
    assert rate.per_second(1.0) == pytest.approx(20_000)
    assert rate.per_second(31.0) < 100


def test_a_clock_that_stands_still_or_goes_back_does_no_harm() -> None:
    rate = PromptRate()
    rate.arrived(10.0, 100)
    rate.arrived(9.0, 100)
    assert rate.per_second(10.0) == pytest.approx(40)
