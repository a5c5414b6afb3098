"""The replay tells scalers apart, and the operator's decision keeps its promise on each trace."""

import pytest

from bench.programs import autoscale
from yaie_operator.autoscaling.history import Engines


class Fixed:
    """Always the same number of engines."""

    period_s = 10.0

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def look(self, now: float, active: float, engines: Engines) -> int:
        return self._replicas


def test_enough_engines_miss_nothing_and_cost_what_they_run() -> None:
    work = [(float(second), 4.0) for second in range(60, 600)]
    enough = autoscale.replay(work, Fixed(1), start_s=30)
    assert (enough.misses, enough.flips) == (0, 0)
    assert enough.gpu_seconds == autoscale.TRACE_S


def test_too_few_engines_miss_what_waits() -> None:
    work = [(float(second), 40.0) for second in range(60, 600)]
    assert autoscale.replay(work, Fixed(1), start_s=30).misses > 100


@pytest.mark.parametrize("trace", autoscale.TRACES)
def test_fewer_misses_than_both_rivals_for_at_most_a_tenth_more(trace: str) -> None:
    outcomes = autoscale.compare(trace, seeds=2, start_s=60)
    ours = outcomes.pop("ours")
    for name, other in outcomes.items():
        assert ours.misses < other.misses, name
        assert ours.gpu_seconds <= 1.1 * other.gpu_seconds, name
