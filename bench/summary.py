"""What became of a load: one line of figures for each rate. Pure; times are seconds until printed.

The fields of `Summary` are those of the JSON lines that the peers' figures were read from.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from arrivals import BIG_PROMPT

Percentiles = list[float | None]


@dataclass(slots=True)
class Outcome:
    """One request as its client saw it; the client fills it while the answer streams.

    Attributes:
        prompt_tokens: length of the prompt.
        max_tokens: tokens asked for; EOS is ignored, so as many have to come.
        start_s: when it was sent, on the clock that all clients share.
        lag_s: how much later than planned that was; above milliseconds the client is too slow.
        ttft_s: from sending to the first chunk.
        last_s: when the last chunk came.
        gaps_s: between one chunk and the next.
        usage: output tokens as the server counted them.
        error: why it did not end well.

    """

    prompt_tokens: int
    max_tokens: int
    start_s: float
    lag_s: float
    ttft_s: float | None = None
    last_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    usage: int = 0
    error: str | None = None

    @property
    def ended_well(self) -> bool:
        return self.error is None and self.usage == self.max_tokens

    @property
    def is_big(self) -> bool:
        return self.prompt_tokens >= BIG_PROMPT

    @property
    def complaint(self) -> str | None:
        """Why it did not end well; None if it did."""
        if self.ended_well or self.error is not None:
            return self.error
        if self.usage == 0:
            return "cut off at the end of the grace period"
        return f"{self.usage} of {self.max_tokens} tokens"

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first one."""
        if self.ttft_s is None or self.last_s is None or self.max_tokens < 2:
            return None
        return (self.last_s - self.start_s - self.ttft_s) / (self.max_tokens - 1)


@dataclass(frozen=True)
class Summary:
    """A rate's figures; the names say which percentiles a list holds. Latencies in milliseconds.

    `rate` is in requests/s, None for a burst. Percentiles of nothing are None.
    """

    label: str
    rate: float | None
    requests: int
    ended_well: int
    errors: list[str]
    seconds: float
    ttft_ms_p50_p99: Percentiles
    ttft_8k_ms_p50_max: Percentiles
    gap_ms_p50_p99_p999: Percentiles
    tpot_ms_p50_p99: Percentiles
    client_lag_ms_p99: Percentiles
    chunks_per_token: float
    out_tok_s: int

    @property
    def served_rate(self) -> float:
        """Requests that ended well per second, the time until the last one's end included."""
        return self.ended_well / max(self.seconds, 1e-9)


def percentiles_ms(values_s: Iterable[float | None], *shares: float) -> Percentiles:
    """The values at these shares of the sorted sample, in milliseconds; None is no value."""
    values = sorted(value for value in values_s if value is not None)
    if not values:
        return [None] * len(shares)
    ranks = [min(len(values) - 1, int(share * len(values))) for share in shares]
    return [round(1e3 * values[rank], 2) for rank in ranks]


def summarise(
    label: str, rate: float | None, requests: int, outcomes: Sequence[Outcome], start_s: float
) -> Summary:
    """The figures of a load that began at `start_s`."""
    good = [outcome for outcome in outcomes if outcome.ended_well]
    seconds = max((outcome.last_s or start_s for outcome in outcomes), default=start_s) - start_s
    tokens = sum(outcome.usage for outcome in good)
    return Summary(
        label=label,
        rate=rate,
        requests=requests,
        ended_well=len(good),
        errors=sorted({outcome.complaint for outcome in outcomes if outcome.complaint})[:3],
        seconds=round(seconds, 1),
        ttft_ms_p50_p99=percentiles_ms(
            (outcome.ttft_s for outcome in outcomes if not outcome.is_big), 0.5, 0.99
        ),
        ttft_8k_ms_p50_max=percentiles_ms(
            (outcome.ttft_s for outcome in outcomes if outcome.is_big), 0.5, 1
        ),
        gap_ms_p50_p99_p999=percentiles_ms(
            (gap for outcome in outcomes for gap in outcome.gaps_s), 0.5, 0.99, 0.999
        ),
        tpot_ms_p50_p99=percentiles_ms((outcome.tpot_s for outcome in good), 0.5, 0.99),
        client_lag_ms_p99=percentiles_ms((outcome.lag_s for outcome in outcomes), 0.99),
        chunks_per_token=round(
            sum(len(outcome.gaps_s) + 1 for outcome in good) / max(1, tokens), 3
        ),
        out_tok_s=round(tokens / max(seconds, 1e-9)),
    )


def repeat_ratios(first: Summary, again: Summary) -> dict[str, float | None]:
    """How much worse the first time was: above 1 where it had to compile, capture or allocate."""
    return {
        "ttft_p99": _ratio(first.ttft_ms_p50_p99[1], again.ttft_ms_p50_p99[1]),
        "gap_p999": _ratio(first.gap_ms_p50_p99_p999[2], again.gap_ms_p50_p99_p999[2]),
    }


def _ratio(over: float | None, under: float | None) -> float | None:
    return round(over / under, 2) if over is not None and under else None
