"""Ratios are above 1 where we are better; what misses its goal is bold."""

from dataclasses import replace

import pytest

from bench.programs import summary, tables

FIGURES = summary.Summary(
    label="qwen3-0.6b", rate=20.0, requests=300, ended_well=300, errors=[], seconds=16.0,
    ttft_ms_p50_p99=[10.25, 71.0], ttft_8k_ms_p50_max=[50.0, 60.0],
    gap_ms_p50_p99_p999=[1.0, 13.0, 24.0], tpot_ms_p50_p99=[2.0, 3.0], client_lag_ms_p99=[1.0],
    chunks_per_token=1.0, out_tok_s=4_400,
)  # fmt: skip


def cells(table: str, row: int = 0) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]


@pytest.mark.parametrize(
    ("value", "reference", "higher", "expected"),
    [(2.0, 1.0, False, 0.5), (2.0, 1.0, True, 2.0), (1.0, 2.0, False, 2.0)],
)
def test_a_ratio_is_above_one_where_we_are_better(
    value: float, reference: float, expected: float, *, higher: bool
) -> None:
    assert tables.ratio(value, reference, higher_is_better=higher) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.28, "0.28"), (13.84, "13.8"), (201.4, "201"), (18_404, "18,404")],
)
def test_numbers_have_three_digits_or_all_of_a_large_one(value: float | None, text: str) -> None:
    assert tables.number(value) == text


def test_a_rate_stands_beside_the_stored_figures_of_its_shape() -> None:
    row = cells(tables.online_table([tables.Line(FIGURES)]))

    assert row[:3] == ["qwen3-0.6b 20/s", "10.2 / 20.5 / 2.00", "71.0 / 71.0 / 1.00"]
    assert row[-3:] == ["4,400 / 4,316 / 1.02", "300/300", "holds"]


def test_one_slower_figure_misses_the_goal() -> None:
    slow = replace(FIGURES, tpot_ms_p50_p99=[2.0, 6.62])

    row = cells(tables.online_table([tables.Line(slow)]))

    assert row[8] == "6.62 / 3.31 / **0.50**"
    assert row[-1] == "missed"


def test_a_request_that_was_lost_misses_the_goal() -> None:
    row = cells(tables.online_table([tables.Line(replace(FIGURES, ended_well=299))]))

    assert row[-2:] == ["**299/300**", "missed"]


def test_a_figure_that_is_not_there_misses_the_goal() -> None:
    none = replace(FIGURES, ttft_8k_ms_p50_max=[None, None])

    row = cells(tables.online_table([tables.Line(none)]))

    assert row[3] == "**-** / 52.0"
    assert row[-1] == "missed"


def test_a_rate_that_no_peer_had_has_figures_alone() -> None:
    row = cells(tables.online_table([tables.Line(replace(FIGURES, rate=33.0))]))

    assert (row[1], row[-1]) == ("10.2", "-")


def test_a_peer_of_the_same_run_comes_before_the_stored_figures() -> None:
    first = tables.Line(replace(FIGURES, ttft_ms_p50_p99=[41.0, 71.0]), peer="other")
    second = tables.Line(replace(FIGURES, ttft_ms_p50_p99=[82.0, 71.0]), peer="other")
    ours = tables.Line(FIGURES)

    table = tables.online_table([ours, first, ours, second])

    assert cells(table, 0)[1] == "10.2 / 41.0 / 4.00"
    assert cells(table, 1)[1] == "10.2 / 82.0 / 8.00"


def test_a_burst_says_so() -> None:
    row = cells(tables.online_table([tables.Line(replace(FIGURES, rate=None))]))

    assert row[0] == "qwen3-0.6b burst"


def offline(cell: str, first_s: float, second_s: float) -> tables.OfflineRow:
    figures = [tables.offline_figure(cell, seconds, 1000, 500) for seconds in (first_s, second_s)]
    return tables.OfflineRow(
        model="qwen3-0.6b", cell=cell, wish="plain", unit=tables.peers.UNITS[cell],
        first=figures[0], second=figures[1], first_s=first_s, second_s=second_s,
        tokens_in=1000, tokens_out=500,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("decode1", 4.0), ("decode64", 2.0), ("nano", 250.0), ("prefill", 500.0), ("long", 2.0)],
)
def test_a_run_is_told_in_the_unit_of_its_cell(cell: str, expected: float) -> None:
    assert tables.offline_figure(cell, 2.0, 1000, 500) == expected


def test_an_offline_cell_has_its_peer_goal_and_limit() -> None:
    row = tables.offline_row(offline("decode1", first_s=0.42, second_s=0.4))

    assert row == (
        "| qwen3-0.6b | decode1 | plain | 0.84 ms/token | 0.80 ms/token | 1.05 "
        "| 1.63 | 2.04 | 0.80 | yes | 0.28 | 35% |"
    )


def test_a_slow_first_run_and_a_missed_goal_are_bold() -> None:
    row = tables.offline_row(offline("nano", first_s=0.025, second_s=0.02))

    assert row == (
        "| qwen3-0.6b | nano | plain | 20,000 out tok/s | 25,000 out tok/s | **1.25** "
        "| 23,673 | 1.06 | 30,000 | **no** | 36,300 | 69% |"
    )


def test_a_cell_that_no_peer_had_has_figures_alone() -> None:
    row = tables.offline_row(offline("short", first_s=2.0, second_s=2.0))

    assert row.endswith("| 250 out tok/s | 250 out tok/s | 1.00 | - | - | - | - | - | - |")


def test_the_heads_fit_the_rows() -> None:
    head, line = tables.head(tables.OFFLINE_HEADS).splitlines()

    assert head.count("|") == line.count("|")
    assert head.count("|") == tables.offline_row(offline("decode1", 1.0, 1.0)).count("|")
