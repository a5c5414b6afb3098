"""What the autoscaler remembers of one model between two looks. Frozen, and pure.

Nothing here has to outlive the process: a new leader begins with an empty history, which holds the
replicas as they are until a whole stabilization window has been seen, and with the last decisions,
which are in the model's status.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

STALE_S: Final = 15.0
"""A sample older than this says nothing about now."""
TOLERANCE: Final = 0.1
"""Load up to this share above the target adds no engine; an engine is taken away only if the others
stay this share below it. Between the two a constant load changes nothing.
"""
SETTLE_S: Final = 60.0
"""Latencies are measured over this time, so for as long after a start they tell of the time before.
"""
KNEE_MARGIN: Final = 0.8


@dataclass(frozen=True)
class Policy:
    """`spec.autoscaling` in numbers; times in seconds. At least one target is not None."""

    least: int
    most: int
    active_requests: float | None = None
    kv_utilization: float | None = None
    queue_s: float | None = None
    ttft_p95_s: float | None = None
    window_s: float = 30.0
    panic_window_s: float = 6.0
    panic_factor: float = 2.0
    stabilization_s: float = 180.0
    idle_s: float | None = None
    suspended: bool = False


@dataclass(frozen=True)
class Sample:
    """One look at a model's routers and engines.

    Attributes:
        at_s: when.
        active: requests in flight, those that wait for an engine included.
        pending: requests that wait because no engine is ready.
        arrivals: requests answered since the look before.
        kv_used: KV pages held, summed over engines; 1.0 is all pages of one engine.
        queue_s: how long a request that comes now waits for its first step.
        ttft_p95_s: 95th percentile of the times to first token in the last minute; 0: no requests.
        complete: whether every router and every ready engine answered. If not, the sums are lower
            bounds.

    """

    at_s: float
    active: float = 0.0
    pending: float = 0.0
    arrivals: float = 0.0
    kv_used: float = 0.0
    queue_s: float = 0.0
    ttft_p95_s: float = 0.0
    complete: bool = True

    @property
    def is_idle(self) -> bool:
        return self.complete and not (self.active or self.pending or self.arrivals)


@dataclass(frozen=True)
class Engines:
    """A model's engines: `current` is spec.replicas; `starting` will answer without help, `blocked`
    show that more would not start either.
    """

    current: int
    ready: int = 0
    starting: int = 0
    blocked: int = 0


@dataclass(frozen=True)
class Ask:
    """Engines that the load asked for at a time, and the target that asked."""

    at_s: float
    replicas: int
    target: str


@dataclass(frozen=True)
class History:
    """`asks` are those of the stabilization window that no later one exceeds, so the first is the
    window's maximum. `covered_since_s`: since when complete samples have come without a gap.
    """

    samples: tuple[Sample, ...] = ()
    asks: tuple[Ask, ...] = ()
    covered_since_s: float | None = None
    idle_since_s: float | None = None
    settled_since_s: float | None = None

    @property
    def latest(self) -> Sample | None:
        return self.samples[-1] if self.samples else None


def extend(
    history: History, sample: Sample, policy: Policy, engines: Engines, *, knee: float | None = None
) -> History:
    """Add a sample. `knee`: requests per engine at which a latency target was last missed."""
    now = sample.at_s
    before = history.latest
    known = history if before is not None and now - before.at_s <= STALE_S else History()
    samples = (*(s for s in history.samples if now - s.at_s < policy.window_s), sample)
    idle = sample.is_idle and not engines.starting
    grown = replace(
        history,
        samples=samples,
        covered_since_s=_since(known.covered_since_s, now, holds=sample.complete),
        idle_since_s=_since(known.idle_since_s, now, holds=idle),
        settled_since_s=_since(known.settled_since_s, now, holds=not engines.starting),
    )
    ask = recommend(grown, policy, engines, knee)
    kept = (a for a in history.asks if now - a.at_s <= policy.stabilization_s)
    return replace(grown, asks=(*(a for a in kept if a.replicas > ask.replicas), ask))


def _since(since_s: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if since_s is None else since_s


def recommend(history: History, policy: Policy, engines: Engines, knee: float | None) -> Ask:
    """The most that any target asks for, without bounds. `history` holds at least one sample."""
    latest = history.samples[-1]
    asks: list[tuple[int, str]] = []
    for target, name in (
        (policy.active_requests, "activeRequests"),
        (policy.kv_utilization, "kvUtilization"),
    ):
        if target is not None:
            asks.append((_for_load(history.samples, policy, engines, name, target), name))
    settled_s = latest.at_s - (
        history.settled_since_s if history.settled_since_s is not None else latest.at_s
    )
    if policy.queue_s is not None:
        ratio = latest.queue_s / policy.queue_s
        asks.append((_for_latency(ratio, latest, engines, knee), "queueSeconds"))
    if policy.ttft_p95_s is not None:
        ratio = latest.ttft_p95_s / policy.ttft_p95_s
        # Before the engines have settled, the percentile tells of too few of them: add no more.
        ratio = ratio if settled_s >= SETTLE_S else min(1.0, ratio)
        asks.append((_for_latency(ratio, latest, engines, knee), "ttftP95Seconds"))
    replicas, name = max(asks, key=lambda ask: ask[0])
    return Ask(latest.at_s, replicas, name)


def _for_load(
    samples: Sequence[Sample], policy: Policy, engines: Engines, name: str, target: float
) -> int:
    """Engines for a load that engines share: its mean over the window, or over the panic window if
    that asks for `panic_factor` times the engines that are ready. At zero, the load of now.
    """
    counted = samples if engines.current else samples[-1:]
    values = [(s.at_s, s.active if name == "activeRequests" else s.kv_used) for s in counted]
    now = samples[-1].at_s
    recent = [value for at_s, value in values if now - at_s < policy.panic_window_s]
    steady = _within(sum(value for _, value in values) / len(values) / target, engines.current)
    sudden = _within(sum(recent) / len(recent) / target, engines.current)
    panics = sudden >= policy.panic_factor * max(1, engines.ready)
    return max(steady, sudden) if panics else steady


def _within(load: float, current: int) -> int:
    """Engines for a load, in engines; `current` while the load is close to it."""
    if load > current * (1 + TOLERANCE):
        return _ceil(load)
    return min(current, _ceil(load / (1 - TOLERANCE)))


def _for_latency(ratio: float, sample: Sample, engines: Engines, knee: float | None) -> int:
    """Engines for a latency, as a ratio to its target: at most twice those that are ready.

    A latency does not tell how many engines are too many. So one is taken away if it is below half
    of the target, unless the others would come close to the load at which the target was missed.
    """
    current = engines.current
    if ratio > 1 + TOLERANCE:
        return max(current, _ceil(min(2.0, ratio) * max(1, engines.ready)))
    fewer = max(1, current - 1)
    if ratio > 0.5 or (knee is not None and sample.active / fewer > KNEE_MARGIN * knee):
        return current
    return min(current, fewer)


def _ceil(value: float) -> int:
    """The ceiling, but 3.0000000001 engines are 3."""
    return ceil(value - 1e-9)
