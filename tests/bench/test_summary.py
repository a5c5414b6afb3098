"""What is counted, and how."""

from typing import Any

import pytest

from bench.programs import summary


def outcome(**changes: Any) -> summary.Outcome:
    """Three tokens of three, 10 ms apart, the first after 50 ms."""
    made = summary.Outcome(
        prompt_tokens=20, max_tokens=3, start_s=1.0, lag_s=0.001, ttft_s=0.05, last_s=1.07,
        gaps_s=[0.01, 0.01], usage=3,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("shares", "expected"), [((0.5,), [51.0]), ((0.5, 0.99), [51.0, 100.0]), ((1,), [100.0])]
)
def test_a_percentile_is_the_value_at_its_rank(
    shares: tuple[float, ...], expected: list[float]
) -> None:
    values = [n / 1000 for n in range(100, 0, -1)]

    assert summary.percentiles_ms(values, *shares) == expected


def test_percentiles_of_nothing_are_none() -> None:
    assert summary.percentiles_ms([], 0.5, 0.99) == [None, None]


def test_values_that_are_not_there_do_not_count() -> None:
    assert summary.percentiles_ms([None, 0.002, None], 0.5) == [2.0]


def test_time_per_token_leaves_the_first_token_out() -> None:
    assert outcome().tpot_s == pytest.approx(0.01)
    assert outcome(max_tokens=1).tpot_s is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"usage": 2}, "2 of 3 tokens"),
        ({"usage": 0}, "cut off at the end of the grace period"),
        ({"error": "503 busy"}, "503 busy"),
    ],
)
def test_whatever_did_not_end_well_says_why(changes: dict[str, Any], complaint: str | None) -> None:
    made = outcome(**changes)

    assert made.complaint == complaint
    assert made.ended_well is (complaint is None)


def test_a_load_is_summed_up() -> None:
    outcomes = [
        outcome(),
        outcome(start_s=1.5, ttft_s=0.15, last_s=2.0, gaps_s=[0.17, 0.18]),
        outcome(prompt_tokens=8000, ttft_s=0.4, last_s=1.6),
        outcome(usage=0, ttft_s=None, last_s=None, gaps_s=[], error="429 queue is full"),
    ]

    made = summary.summarise("demo", 2.0, 4, outcomes, start_s=1.0)

    assert (made.requests, made.ended_well, made.errors) == (4, 3, ["429 queue is full"])
    assert made.seconds == 1.0
    assert made.out_tok_s == 9
    assert made.ttft_ms_p50_p99 == [150.0, 150.0]
    assert made.ttft_8k_ms_p50_max == [400.0, 400.0]
    assert made.gap_ms_p50_p99_p999 == [10.0, 180.0, 180.0]
    assert made.chunks_per_token == 1.0
    assert made.served_rate == pytest.approx(3.0)


def test_a_load_that_nobody_answered_has_no_figures() -> None:
    dead = outcome(usage=0, ttft_s=None, last_s=None, gaps_s=[], error="refused")

    made = summary.summarise("demo", 2.0, 1, [dead], start_s=1.0)

    assert (made.ended_well, made.out_tok_s, made.seconds) == (0, 0, 0.0)
    assert made.ttft_ms_p50_p99 == [None, None]


def test_the_first_time_is_compared_with_the_last() -> None:
    slow = summary.summarise("", 1.0, 1, [outcome(ttft_s=0.1)], start_s=1.0)
    fast = summary.summarise("", 1.0, 1, [outcome()], start_s=1.0)

    assert summary.repeat_ratios(slow, fast) == {"ttft_p99": 2.0, "gap_p999": 1.0}


def test_no_ratio_is_made_of_figures_that_are_not_there() -> None:
    none = summary.summarise("", 1.0, 1, [], start_s=1.0)

    assert summary.repeat_ratios(none, none) == {"ttft_p99": None, "gap_p999": None}
