"""Figures beside those of a peer, as Markdown. A ratio is above 1 where we are the better one."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import peers
from peers import Offline, Online
from summary import Summary

NOTHING = "-"
ONLINE_HEADS = (
    "TTFT p50 ms", "TTFT p99", "8k TTFT", "gap p50", "gap p99", "gap p99.9", "TPOT p50",
    "TPOT p99", "out tok/s",
)  # fmt: skip


def ratio(value: float, reference: float, *, higher_is_better: bool) -> float:
    """How many times better than the reference."""
    return value / reference if higher_is_better else reference / value


def number(value: float | None) -> str:
    """Three to four digits, whatever the size."""
    if value is None:
        return NOTHING
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def head(names: Sequence[str]) -> str:
    return f"{row(names)}\n|{'---|' * len(names)}"


# Online


@dataclass(frozen=True)
class Line:
    """A printed line of figures; `peer` names the server where it was not ours."""

    summary: Summary
    peer: str | None = None

    @property
    def place(self) -> tuple[str, float | None]:
        return self.summary.label, self.summary.rate


def figures(summary: Summary) -> Online:
    """The figures that are compared."""
    ttft_p50, ttft_p99 = summary.ttft_ms_p50_p99
    gap_p50, gap_p99, gap_p999 = summary.gap_ms_p50_p99_p999
    tpot_p50, tpot_p99 = summary.tpot_ms_p50_p99
    return Online(
        ttft_p50=ttft_p50,
        ttft_p99=ttft_p99,
        ttft_8k=summary.ttft_8k_ms_p50_max[0],
        gap_p50=gap_p50,
        gap_p99=gap_p99,
        gap_p999=gap_p999,
        tpot_p50=tpot_p50,
        tpot_p99=tpot_p99,
        out_tok_s=summary.out_tok_s,
    )


def online_table(lines: Sequence[Line]) -> str:
    """One row for each line of ours: figure / reference / ratio, bold where the goal is missed.

    The reference is a peer's line with the same label and rate, else the stored figures of the
    shape that the label names.
    """
    measured: dict[tuple[str, float | None], deque[Online]] = defaultdict(deque)
    for line in lines:
        if line.peer:
            measured[line.place].append(figures(line.summary))
    rows = [head(["cell", *ONLINE_HEADS, "ended well", "goal"])]
    for line in lines:
        if not line.peer:
            beside = measured[line.place]  # one for each repetition, in their order
            reference = beside.popleft() if beside else _stored(line.summary)
            rows.append(_online_row(line.summary, reference))
    return "\n".join(rows)


def _stored(summary: Summary) -> Online | None:
    for (shape, rate), stored in peers.ONLINE.items():
        if shape in summary.label and rate == summary.rate:
            return stored
    return None


def _online_row(summary: Summary, reference: Online | None) -> str:
    ours = asdict(figures(summary))
    theirs = asdict(reference) if reference else dict.fromkeys(ours)
    compared = [
        _compared(ours[name], theirs[name], higher_is_better=name == "out_tok_s") for name in ours
    ]
    all_ended = summary.ended_well == summary.requests
    held = all_ended and all(holds for _, holds in compared)
    return row(
        [
            _place(summary.label, summary.rate),
            *(text for text, _ in compared),
            _marked(f"{summary.ended_well}/{summary.requests}", held=all_ended),
            NOTHING if reference is None else "holds" if held else "missed",
        ]
    )


def _compared(
    value: float | None, reference: float | None, *, higher_is_better: bool
) -> tuple[str, bool]:
    """(figure / reference / ratio, whether the figure is as good as the reference)."""
    if reference is None:
        return number(value), True
    if not value:
        return f"**{number(value)}** / {number(reference)}", False
    times = ratio(value, reference, higher_is_better=higher_is_better)
    better = times >= 1
    text = f"{number(value)} / {number(reference)} / {_marked(f'{times:.2f}', held=better)}"
    return text, better


def _marked(text: str, *, held: bool) -> str:
    return text if held else f"**{text}**"


def repeat_text(label: str, rate: float | None, ratios: Mapping[str, float | None]) -> str:
    """How the first time compares with the last one."""
    compared = ", ".join(f"{name} {number(value)}" for name, value in ratios.items())
    return f"{_place(label, rate)}: first over last time: {compared}"


def _place(label: str, rate: float | None) -> str:
    return f"{label} {'burst' if rate is None else f'{rate:g}/s'}".strip()


# Offline

OFFLINE_HEADS = (
    "model", "cell", "wish", "first run", "second run", "first / second", "vLLM", "ratio", "goal",
    "goal holds", "limit", "share of the limit",
)  # fmt: skip


@dataclass(frozen=True)
class OfflineRow:
    """A cell of one model: its figures in `unit`, and the seconds behind them."""

    model: str
    cell: str
    wish: str
    unit: str
    first: float
    second: float
    first_s: float
    second_s: float
    tokens_in: int
    tokens_out: int

    @property
    def higher_is_better(self) -> bool:
        return "tok/s" in self.unit

    @property
    def first_over_second(self) -> float:
        """Time of the first run over that of the second."""
        return self.first_s / self.second_s


def offline_figure(cell: str, seconds: float, tokens_in: int, tokens_out: int) -> float:
    """Express a run in the cell's unit."""
    return {
        "ms/token": seconds / tokens_out * 1e3,
        "out tok/s": tokens_out / seconds,
        "in tok/s": tokens_in / seconds,
        "s": seconds,
    }[peers.UNITS[cell]]


def offline_row(figure: OfflineRow) -> str:
    """One line of the table."""
    known = peers.OFFLINE.get((figure.model, figure.cell), Offline())
    over = figure.first_over_second
    versus_peer, versus_goal, share = (
        ratio(figure.second, reference, higher_is_better=figure.higher_is_better)
        if reference
        else None
        for reference in (known.peer, known.goal, known.limit)
    )
    return row(
        [
            figure.model,
            figure.cell,
            figure.wish,
            f"{number(figure.first)} {figure.unit}",
            f"{number(figure.second)} {figure.unit}",
            _marked(f"{over:.2f}", held=over <= peers.FIRST_RUN_GOAL),
            number(known.peer),
            NOTHING if versus_peer is None else f"{versus_peer:.2f}",
            number(known.goal),
            NOTHING if versus_goal is None else "yes" if versus_goal >= 1 else "**no**",
            number(known.limit),
            NOTHING if share is None else f"{share:.0%}",
        ]
    )
