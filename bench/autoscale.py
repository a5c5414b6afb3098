"""The autoscaler's decision against a 10-minute mean and the HPA's rule, on replayed load.

    python bench/autoscale.py [--start-s 60] [--seeds 5] [--traces bursty,diurnal,step]

Ours is the operator's own code (`yaie_operator.autoscaling`). An engine takes SLOTS requests at a
time, costs from the moment it is asked for until it has finished its last one, and takes requests
`--start-s` seconds after it was asked for; one queue feeds all engines. A request misses when its
first token comes later than SLO_S after it. All three scale by requests in flight, with the same
target, bounds and load. A flip is a change of direction.

The rivals' rules, from their documentation: a mean of 10 minutes looked at each 10 s, down when
fewer was asked for throughout 30 s (KubeAI); ceil(current * metric / target) each 15 s, within 10 %
nothing, at most 4 more or twice as many at a time, down to the most of 5 minutes (HPA).
"""

import argparse
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from yaie_operator.autoscaling.decision import decide
from yaie_operator.autoscaling.history import Engines, History, Policy, Sample, extend

SLOTS, TARGET = 16, 12.0
SERVICE_S, PREFILL_S, SLO_S = 8.0, 0.2, 2.0
LEAST, MOST = 1, 16
TICK_S, TRACE_S = 0.5, 7200.0


# Load, in requests/s


def bursty(rng: random.Random) -> Callable[[float], float]:
    """1.5/s, and bursts of 1 to 4 minutes with 6 to 12/s, 8 minutes apart in the mean."""
    bursts, at_s = [], 0.0
    while at_s < TRACE_S:
        at_s += rng.expovariate(1 / 480)
        length_s = rng.uniform(60, 240)
        bursts.append((at_s, at_s + length_s, rng.uniform(6, 12)))
        at_s += length_s
    return lambda t: 1.5 + sum(rate for since, until, rate in bursts if since <= t < until)


def diurnal(rng: random.Random) -> Callable[[float], float]:
    """A day in two hours: 1 to 13/s as a sine."""
    phase = rng.uniform(0, 2 * math.pi)
    return lambda t: 7 + 6 * math.sin(2 * math.pi * t / TRACE_S + phase)


def step(rng: random.Random) -> Callable[[float], float]:
    """Another constant rate each 20 minutes."""
    levels = [rng.uniform(1, 13) for _ in range(math.ceil(TRACE_S / 1200))]
    return lambda t: levels[min(int(t / 1200), len(levels) - 1)]


TRACES = {"bursty": bursty, "diurnal": diurnal, "step": step}


def arrivals(rate: Callable[[float], float], rng: random.Random) -> list[tuple[float, float]]:
    """Poisson arrivals of a changing rate: (time, seconds of service)."""
    most, at_s, found = 20.0, 0.0, []
    while (at_s := at_s + rng.expovariate(most)) < TRACE_S:
        if rng.random() < rate(at_s) / most:
            found.append((at_s, rng.expovariate(1 / SERVICE_S)))
    return found


# Who decides


class Scaler(Protocol):
    """`period_s`: between looks. `look` returns the replicas that there should be."""

    period_s: float

    def look(self, now: float, active: float, engines: Engines, /) -> int: ...


class Ours:
    period_s = 2.0

    def __init__(self) -> None:
        self._policy = Policy(least=LEAST, most=MOST, active_requests=TARGET)
        self._history = History()

    def look(self, now: float, active: float, engines: Engines) -> int:
        sample = Sample(now, active=active)
        self._history = extend(self._history, sample, self._policy, engines)
        return decide(self._history, self._policy, engines, now).replicas


class MovingMean:
    """Ten minutes' mean; down after three looks in a row that asked for fewer."""

    period_s = 10.0

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=60)
        self._fewer = 0

    def look(self, _now: float, active: float, engines: Engines) -> int:
        self._seen.append(active)
        asked = _bounded(math.ceil(sum(self._seen) / len(self._seen) / TARGET))
        self._fewer = self._fewer + 1 if asked < engines.current else 0
        return asked if asked > engines.current or self._fewer > 3 else engines.current


class HPA:
    """The horizontal pod autoscaler's rule with its default behaviour."""

    period_s = 15.0

    def __init__(self) -> None:
        self._asked: deque[int] = deque(maxlen=20)

    def look(self, _now: float, active: float, engines: Engines) -> int:
        current = engines.current
        ratio = active / current / TARGET
        asked = current if abs(ratio - 1) <= 0.1 else _bounded(math.ceil(current * ratio))
        self._asked.append(asked)
        if asked > current:
            return min(asked, max(current + 4, current * 2))
        return min(current, max(self._asked))


def _bounded(replicas: int) -> int:
    return min(MOST, max(LEAST, replicas))


SCALERS: dict[str, Callable[[], Scaler]] = {
    "ours": Ours,
    "10-minute mean": MovingMean,
    "HPA's rule": HPA,
}


# The world


@dataclass
class Fleet:
    """Engines by when they are ready."""

    start_s: float
    ready_at_s: list[float] = field(default_factory=list)

    def resize(self, replicas: int, now: float) -> None:
        while len(self.ready_at_s) < replicas:
            self.ready_at_s.append(now + self.start_s)
        while len(self.ready_at_s) > replicas:
            self.ready_at_s.remove(max(self.ready_at_s))  # as a Deployment does: starting ones

    def ready(self, now: float) -> int:
        return sum(at_s <= now for at_s in self.ready_at_s)


@dataclass(frozen=True)
class Outcome:
    """What one trace cost and missed."""

    requests: int
    misses: int
    gpu_seconds: float
    flips: int


def replay(work: Sequence[tuple[float, float]], scaler: Scaler, start_s: float) -> Outcome:
    """Run one trace to its end."""
    fleet = Fleet(start_s)
    fleet.resize(LEAST, -start_s)
    waiting: deque[tuple[float, float]] = deque()
    ends: list[float] = []
    misses = following = 0
    gpu_seconds, next_look, directions, now = 0.0, 0.0, list[int](), 0.0
    while now < TRACE_S:
        while following < len(work) and work[following][0] <= now:
            waiting.append(work[following])
            following += 1
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        ready = fleet.ready(now)
        while waiting and len(ends) < ready * SLOTS:
            arrived_s, service_s = waiting.popleft()
            misses += now - arrived_s + PREFILL_S > SLO_S
            heapq.heappush(ends, now + service_s)
        if now >= next_look:
            current = len(fleet.ready_at_s)
            engines = Engines(current, ready=ready, starting=current - ready)
            wanted = scaler.look(now, len(ends) + len(waiting), engines)
            if wanted != current:
                directions.append(1 if wanted > current else -1)
                fleet.resize(wanted, now)
            next_look = now + scaler.period_s
        # Engines that were taken away finish what the others have no slots for.
        draining = math.ceil(max(0, len(ends) - fleet.ready(now) * SLOTS) / SLOTS)
        gpu_seconds += (len(fleet.ready_at_s) + draining) * TICK_S
        now += TICK_S
    misses += sum(TRACE_S - arrived_s > SLO_S for arrived_s, _ in waiting)
    flips = sum(a != b for a, b in pairwise(directions))
    return Outcome(len(work), misses, gpu_seconds, flips)


def compare(trace: str, seeds: int, start_s: float) -> dict[str, Outcome]:
    """Sums over seeds, by scaler. All see the same load."""
    totals: dict[str, Outcome] = {}
    for seed in range(seeds):
        rng = random.Random(seed)
        work = arrivals(TRACES[trace](rng), rng)
        for name, make in SCALERS.items():
            got, had = replay(work, make(), start_s), totals.get(name, Outcome(0, 0, 0.0, 0))
            totals[name] = Outcome(
                had.requests + got.requests,
                had.misses + got.misses,
                had.gpu_seconds + got.gpu_seconds,
                had.flips + got.flips,
            )
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start-s", type=float, default=60.0, help="seconds to start an engine")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--traces", default=",".join(TRACES))
    given = parser.parse_args()
    print(f"engine start {given.start_s:g} s, {given.seeds} seeds of {TRACE_S / 3600:g} h")
    print("| trace | scaler | requests | misses | misses % | GPU-seconds | ours / it | flips |")
    print("|---|---|---|---|---|---|---|---|")
    for trace in given.traces.split(","):
        outcomes = compare(trace, given.seeds, given.start_s)
        for name, o in outcomes.items():
            ratio = outcomes["ours"].gpu_seconds / o.gpu_seconds
            print(
                f"| {trace} | {name} | {o.requests} | {o.misses} | "
                f"{100 * o.misses / o.requests:.1f} | {o.gpu_seconds:.0f} | {ratio:.2f} | "
                f"{o.flips} |"
            )


if __name__ == "__main__":
    main()
