"""Turns the figures of routers and engines into samples. Pure.

Rates and percentiles need the figures of earlier looks: `Tracks` keeps them, by pod, for a minute.
A counter that fell belongs to a process that restarted; its whole value is new.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures, quantile
from yaie_operator.autoscaling.history import Sample

WINDOW_S: Final = 60.0
"""Rates and percentiles are of this time."""
STANDING_S: Final = 6.0
"""A queue counts if it stood this long: requests that came since the last step are no queue."""

Looks = tuple[tuple[float, EngineFigures], ...]


@dataclass(frozen=True)
class Tracks:
    """What is kept between looks: each engine's figures of the last minute, oldest first, and the
    routers' counters of one model.
    """

    engines: Mapping[str, Looks] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)


def look(
    model: str,
    tracks: Tracks,
    now: float,
    routers: Mapping[str, RouterFigures | None],
    engines: Mapping[str, EngineFigures | None],
) -> tuple[Sample, Tracks]:
    """Make a sample from the figures by pod; None: the pod did not answer."""
    answering = {pod: figures for pod, figures in routers.items() if figures is not None}
    requests = {pod: figures.requests.get(model, 0.0) for pod, figures in answering.items()}
    grown = {
        pod: (*_recent(tracks.engines.get(pod, ()), now), (now, figures))
        for pod, figures in engines.items()
        if figures is not None
    }
    in_flight = sum(figures.in_flight.get(model, 0.0) for figures in answering.values())
    generating = sum(looks[-1][1].running + looks[-1][1].waiting for looks in grown.values())
    sample = Sample(
        at_s=now,
        active=max(in_flight, generating),
        pending=sum(figures.pending.get(model, 0.0) for figures in answering.values()),
        arrivals=sum(_increase(tracks.requests.get(pod), n) for pod, n in requests.items()),
        kv_used=sum(looks[-1][1].kv_utilization for looks in grown.values()),
        queue_s=_queue_s(grown.values(), now),
        ttft_p95_s=quantile(_ttft(grown.values()), 0.95),
        complete=bool(routers) and None not in (*routers.values(), *engines.values()),
    )
    kept = {pod: n for pod, n in tracks.requests.items() if pod in routers}
    return sample, Tracks(engines=grown, requests={**kept, **requests})


def _recent(looks: Looks, now: float) -> Looks:
    return tuple(entry for entry in looks if now - entry[0] <= WINDOW_S)


def _increase(before: float | None, after: float) -> float:
    """Increase of a counter; of one that is seen for the first time, nothing is known."""
    if before is None:
        return 0.0
    return after - before if after >= before else after


def _queue_s(engines: Iterable[Looks], now: float) -> float:
    """Little's law: the standing queues over the rate of first tokens. If none came, requests wait
    at least since the window began.
    """
    standing = first_tokens = 0.0
    seen_s = 0.0
    for looks in engines:
        standing += min(figures.waiting for at_s, figures in looks if now - at_s <= STANDING_S)
        (since_s, oldest), newest = looks[0], looks[-1][1]
        first_tokens += _increase(oldest.first_tokens, newest.first_tokens)
        seen_s = max(seen_s, now - since_s)
    if not standing or not seen_s:
        return 0.0
    return min(seen_s, standing * seen_s / first_tokens) if first_tokens else seen_s


def _ttft(engines: Iterable[Looks]) -> Mapping[float, float]:
    """Increase of the time-to-first-token histogram within the window, over all engines."""
    total: dict[float, float] = {}
    for looks in engines:
        newest, oldest = looks[-1][1], looks[0][1]
        restarted = newest.first_tokens < oldest.first_tokens
        before = {} if restarted else dict(oldest.ttft)
        for bound, count in newest.ttft:
            total[bound] = total.get(bound, 0.0) + count - before.get(bound, 0.0)
    return total
