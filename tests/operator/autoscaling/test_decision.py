"""Laws of the decision, for any load; and its behaviour second by second."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_operator.autoscaling.decision import Decision, Past, Why, decide, knee
from yaie_operator.autoscaling.history import (
    STALE_S,
    Engines,
    History,
    Policy,
    Sample,
    extend,
)

POLICY = Policy(least=1, most=10, active_requests=10.0)
STEP_S = 2.0


def run(
    loads: list[float],
    *,
    policy: Policy = POLICY,
    current: int = 1,
    start_looks: int = 0,
    now: float = 0.0,
) -> tuple[list[int], list[Decision], History]:
    """Follow a load, sampled each two seconds; engines are ready after `start_looks` samples."""
    history, counts, told = History(), [], []
    for load in loads:
        ready = min([current, *counts[len(counts) - start_looks :]]) if start_looks else current
        engines = Engines(current, ready=ready, starting=current - ready)
        history = extend(history, Sample(now, active=load), policy, engines)
        decision = decide(history, policy, engines, now)
        current = decision.replicas
        counts.append(current)
        told.append(decision)
        now += STEP_S
    return counts, told, history


policies = st.builds(
    lambda least, extra, **rest: Policy(
        least=least, most=max(1, least + extra), idle_s=60.0 if least == 0 else None, **rest
    ),
    least=st.integers(0, 4),
    extra=st.integers(0, 8),
    active_requests=st.floats(1, 50),
    kv_utilization=st.none() | st.floats(0.2, 0.95),
    queue_s=st.none() | st.floats(0.1, 10),
    ttft_p95_s=st.none() | st.floats(0.1, 10),
    stabilization_s=st.sampled_from([0.0, 30.0, 300.0]),
)
samples = st.builds(
    Sample,
    at_s=st.just(0.0),
    active=st.floats(0, 500),
    pending=st.integers(0, 20).map(float),
    arrivals=st.integers(0, 20).map(float),
    kv_used=st.floats(0, 10),
    queue_s=st.floats(0, 100),
    ttft_p95_s=st.floats(0, 100),
    complete=st.booleans(),
)
looks = st.lists(st.tuples(samples, st.floats(0.5, 40)), min_size=1, max_size=30)
fleets = st.builds(
    Engines,
    current=st.integers(0, 14),
    ready=st.integers(0, 14),
    starting=st.integers(0, 3),
    blocked=st.integers(0, 3),
)


def grow(
    observed: list[tuple[Sample, float]], policy: Policy, engines: Engines
) -> tuple[History, float]:
    now, history = 0.0, History()
    for sample, gap_s in observed:
        now += gap_s
        history = extend(history, replace(sample, at_s=now), policy, engines)
    return history, now


@given(policies, looks, fleets, st.floats(0, 60))
def test_the_replicas_are_never_outside_the_bounds(
    policy: Policy, observed: list[tuple[Sample, float]], engines: Engines, later_s: float
) -> None:
    history, now = grow(observed, policy, engines)
    replicas = decide(history, policy, engines, now + later_s).replicas
    assert policy.least <= replicas <= policy.most


@given(policies, looks, fleets, st.floats(0.01, 1000))
def test_nothing_is_taken_away_on_stale_samples(
    policy: Policy, observed: list[tuple[Sample, float]], engines: Engines, later_s: float
) -> None:
    history, now = grow(observed, policy, engines)
    replicas = decide(history, policy, engines, now + STALE_S + later_s).replicas
    assert replicas >= min(engines.current, policy.most)


@given(policies, looks, fleets)
def test_nothing_is_taken_away_on_incomplete_samples(
    policy: Policy, observed: list[tuple[Sample, float]], engines: Engines
) -> None:
    last, gap_s = observed[-1]
    history, now = grow([*observed[:-1], (replace(last, complete=False), gap_s)], policy, engines)
    replicas = decide(history, policy, engines, now).replicas
    assert replicas >= min(engines.current, policy.most)


@given(policies, looks, fleets)
def test_an_engine_that_starts_is_never_taken_away(
    policy: Policy, observed: list[tuple[Sample, float]], engines: Engines
) -> None:
    engines = replace(engines, starting=max(1, engines.starting))
    history, now = grow(observed, policy, engines)
    assert decide(history, policy, engines, now).replicas >= min(engines.current, policy.most)


@given(policies, looks, fleets, st.floats(1.0, 20.0), st.floats(0, 1))
def test_more_load_never_means_fewer_engines(
    policy: Policy,
    observed: list[tuple[Sample, float]],
    engines: Engines,
    factor: float,
    at: float,
) -> None:
    more = [
        (
            replace(
                s,
                active=s.active * factor,
                kv_used=s.kv_used * factor,
                queue_s=s.queue_s * factor,
                ttft_p95_s=s.ttft_p95_s * factor,
            ),
            gap_s,
        )
        for s, gap_s in observed
    ]
    less, now = grow(observed, policy, engines)
    greater, _ = grow(more, policy, engines)
    few = decide(less, policy, engines, now + at).replicas
    assert decide(greater, policy, engines, now + at).replicas >= few


@given(st.floats(0, 130), st.integers(1, 10), st.floats(1, 40))
@settings(max_examples=60)
def test_a_constant_load_is_followed_once_and_then_left_alone(
    load: float, current: int, target: float
) -> None:
    policy = replace(POLICY, active_requests=target, stabilization_s=60.0)
    counts, _, _ = run([load] * 120, policy=policy, current=current)
    changes = sum(a != b for a, b in zip([current, *counts], counts, strict=False))
    assert changes <= 1


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(1, 10))
@settings(max_examples=60)
def test_a_new_process_takes_nothing_away_before_it_has_seen_a_whole_window(
    loads: list[float], current: int
) -> None:
    policy = replace(POLICY, stabilization_s=60.0)
    counts, _, _ = run(loads, policy=policy, current=current, now=5000.0)
    assert all(after >= before for before, after in pairwise([current, *counts[:30]]))


def test_a_sudden_load_is_answered_within_the_panic_window() -> None:
    counts, told, _ = run([5.0] * 30 + [80.0] * 4, start_looks=10)
    assert counts[29] == 1
    assert counts[-1] == 8
    assert told[31].why is Why.ABOVE_TARGET
    assert told[31].target == "activeRequests"


def test_a_small_rise_waits_for_the_mean_of_the_window() -> None:
    counts, _, _ = run([30.0] * 20 + [38.0] * 2, current=3)
    assert counts[-1] == 3


def test_engines_go_only_after_the_whole_window_asked_for_fewer() -> None:
    counts, told, _ = run([45.0] * 10 + [5.0] * 170, current=5)
    low_from = 10
    first_down = next(i for i, n in enumerate(counts) if n < 5)
    assert (first_down - low_from) * STEP_S >= POLICY.stabilization_s
    assert told[first_down - 1].why is Why.STABILIZING
    assert counts[-1] == 1


def test_a_burst_inside_the_window_keeps_its_engines() -> None:
    counts, _, _ = run(([45.0] * 20 + [5.0] * 60) * 3, current=5)
    assert set(counts) == {5}


def test_zero_comes_after_idle_seconds_and_not_before() -> None:
    policy = Policy(least=0, most=4, active_requests=10.0, idle_s=60.0, stabilization_s=300.0)
    counts, told, _ = run([5.0] * 5 + [0.0] * 40, policy=policy)
    assert counts.index(0) * STEP_S == 5 * STEP_S + 60
    assert told[counts.index(0)].why is Why.TO_ZERO


def test_an_arrival_between_two_looks_is_activity() -> None:
    policy = Policy(least=0, most=4, active_requests=10.0, idle_s=20.0)
    engines, history = Engines(1, ready=1), History()
    for second in range(0, 60, 2):
        arrivals = 1.0 if second % 10 == 0 else 0.0
        history = extend(history, Sample(float(second), arrivals=arrivals), policy, engines)
        assert decide(history, policy, engines, float(second)).replicas == 1


def test_from_zero_at_once_for_all_that_wait() -> None:
    policy = Policy(least=0, most=4, active_requests=10.0, idle_s=60.0)
    engines = Engines(0)
    history = extend(History(), Sample(0.0, active=25.0, pending=25.0), policy, engines)
    decision = decide(history, policy, engines, 0.0)
    assert (decision.replicas, decision.why) == (3, Why.FROM_ZERO)


def test_zero_stays_zero_without_requests() -> None:
    policy = Policy(least=0, most=4, active_requests=10.0, idle_s=60.0)
    counts, _, _ = run([0.0] * 20, policy=policy, current=0)
    assert set(counts) == {0}


def test_from_zero_for_a_request_that_was_refused_meanwhile() -> None:
    """A router that holds nothing still counts what it answered."""
    policy = Policy(least=0, most=4, active_requests=10.0, idle_s=60.0)
    history = extend(History(), Sample(0.0, arrivals=1.0), policy, Engines(0))
    assert decide(history, policy, Engines(0), 0.0).replicas == 1


def test_suspend_beats_all() -> None:
    policy = replace(POLICY, suspended=True, least=2)
    engines = Engines(1)
    history = extend(History(), Sample(0.0, active=500.0, pending=9.0), policy, engines)
    decision = decide(history, policy, engines, 0.0)
    assert (decision.replicas, decision.why) == (1, Why.SUSPENDED)


def test_more_is_not_asked_for_where_engines_find_no_place() -> None:
    engines = Engines(4, ready=3, blocked=1)
    history = extend(History(), Sample(0.0, active=90.0), POLICY, engines)
    decision = decide(history, POLICY, engines, 0.0)
    assert (decision.replicas, decision.why) == (4, Why.NO_CAPACITY)
    assert "1 of 4" in decision.message


def test_the_maximum_is_named_when_the_load_asks_for_more() -> None:
    engines = Engines(10, ready=10)
    history = extend(History(), Sample(0.0, active=150.0), POLICY, engines)
    decision = decide(history, POLICY, engines, 0.0)
    assert (decision.replicas, decision.why, decision.wanted) == (10, Why.AT_MAXIMUM, 15)


@pytest.mark.parametrize(("current", "replicas"), [(1, 2), (9, 4), (3, 3)])
def test_new_bounds_hold_at_once(current: int, replicas: int) -> None:
    policy = replace(POLICY, least=2, most=4)
    engines = Engines(current, ready=current)
    history = extend(History(), Sample(0.0, active=25.0), policy, engines)
    assert decide(history, policy, engines, 0.0).replicas == replicas


def test_a_latency_does_not_double_engines_that_are_starting() -> None:
    policy = Policy(least=1, most=16, queue_s=1.0)
    engines = Engines(2, ready=1, starting=1)
    history = extend(History(), Sample(0.0, queue_s=9.0), policy, engines)
    assert decide(history, policy, engines, 0.0).replicas == 2


def test_ttft_of_before_a_start_adds_no_engine() -> None:
    policy = Policy(least=1, most=16, ttft_p95_s=1.0)
    starting, ready = Engines(2, ready=1, starting=1), Engines(2, ready=2)
    history = extend(History(), Sample(0.0, ttft_p95_s=9.0), policy, starting)
    for second in range(2, 60, 2):
        history = extend(history, Sample(float(second), ttft_p95_s=9.0), policy, ready)
        assert decide(history, policy, ready, float(second)).replicas == 2
    for second in range(60, 64, 2):
        history = extend(history, Sample(float(second), ttft_p95_s=9.0), policy, ready)
    assert decide(history, policy, ready, 62.0).replicas == 4


def test_a_latency_remembers_the_load_that_was_too_much() -> None:
    """40 requests on 2 engines missed the target: with 38 in flight, 3 engines stay."""
    past = (Past(0.0, 2, 3, "queueSeconds", 40.0),)
    policy = Policy(least=1, most=8, queue_s=1.0, stabilization_s=10.0)
    assert knee(past) == 20.0

    def after_a_minute(active: float) -> int:
        engines, history = Engines(3, ready=3), History()
        for second in range(0, 60, 2):
            sample = Sample(float(second), active=active)
            history = extend(history, sample, policy, engines, knee=knee(past))
        return decide(history, policy, engines, 58.0).replicas

    assert after_a_minute(38.0) == 3
    assert after_a_minute(30.0) == 2
