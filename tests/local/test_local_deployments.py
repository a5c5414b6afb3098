import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.local_objects import deployment, pod
from yaie_local.controllers.deployments import (
    LABEL_HASH,
    Decision,
    PodView,
    Wanted,
    decide,
    status_of,
    template_hash,
    view,
    wanted_of,
)
from yaie_local.objects import condition


def new(name: str, **more: Any) -> PodView:
    return PodView(name, is_current=True, **{"is_ready": True, "is_available": True, **more})


def old(name: str, **more: Any) -> PodView:
    return PodView(name, is_current=False, **{"is_ready": True, "is_available": True, **more})


UNREADY = {"is_ready": False, "is_available": False}
GONE = {"is_terminating": True}


@pytest.mark.parametrize(
    ("title", "wanted", "pods", "decision"),
    [
        ("nothing is there", Wanted(2), [], Decision(2)),
        ("all is there", Wanted(1), [new("a")], Decision()),
        ("one ends", Wanted(1), [new("a", **GONE)], Decision(1)),
        (
            "too many",
            Wanted(1),
            [new("a", created="1"), new("b", created="2")],
            Decision(0, ("b",)),
        ),
        ("to zero", Wanted(0), [new("a")], Decision(0, ("a",))),
        ("the unready goes first", Wanted(1), [new("a", **UNREADY), new("b")], Decision(0, ("a",))),
        (
            "the unscheduled goes before the unready",
            Wanted(1),
            [new("a", **UNREADY), new("b", is_scheduled=False, **UNREADY)],
            Decision(0, ("b",)),
        ),
        ("a rollout surges", Wanted(1), [old("a")], Decision(1)),
        ("and waits for the new one", Wanted(1), [old("a"), new("b", **UNREADY)], Decision()),
        ("then drops the old one", Wanted(1), [old("a"), new("b")], Decision(0, ("a",))),
        (
            "without surge it drops first",
            Wanted(1, surge=0, unavailable=1),
            [old("a")],
            Decision(0, ("a",)),
        ),
        (
            "and starts when the old one ends",
            Wanted(1, surge=0, unavailable=1),
            [old("a", **GONE)],
            Decision(1),
        ),
        (
            "a broken old one goes before a working one",
            Wanted(2, unavailable=1),
            [old("a"), old("b", **UNREADY)],
            Decision(1, ("b",)),
        ),
        (
            "three at once where three may be missing",
            Wanted(3, surge=0, unavailable=3),
            [old("a"), old("b"), old("c")],
            Decision(0, ("c", "b", "a")),
        ),
        ("recreate drops all", Wanted(1, recreate=True), [old("a")], Decision(0, ("a",))),
        ("recreate waits for the end", Wanted(1, recreate=True), [old("a", **GONE)], Decision()),
        ("recreate starts then", Wanted(1, recreate=True), [], Decision(1)),
    ],
)
def test_decisions(title: str, wanted: Wanted, pods: list[PodView], decision: Decision) -> None:
    assert decide(wanted, pods) == decision, title


@settings(max_examples=300, deadline=None)
@given(
    wanted=st.builds(
        Wanted, st.integers(0, 6), st.integers(0, 3), st.integers(1, 3), recreate=st.booleans()
    ),
    start=st.lists(st.booleans(), max_size=8),
    seed=st.integers(0, 2**32),
)
def test_every_rollout_ends_and_keeps_its_limits(
    wanted: Wanted, start: list[bool], seed: int
) -> None:
    """Old pods (ready or not) become new ones; total and available stay inside the limits."""
    rng = random.Random(seed)
    pods = {f"o{i}": old(f"o{i}", is_ready=up, is_available=up) for i, up in enumerate(start)}
    for step in range(200):
        decision = decide(wanted, list(pods.values()))
        if decision == Decision() and all(pod.is_ready for pod in pods.values()):
            break
        carry_out(wanted, decision, pods, step)
        for name in [n for n, p in pods.items() if p.is_current and rng.random() < 0.5]:
            pods[name] = new(name)
    assert len(pods) == wanted.replicas
    assert all(p.is_current and p.is_ready for p in pods.values())


def carry_out(wanted: Wanted, decision: Decision, pods: dict[str, PodView], step: int) -> None:
    """Do what was decided and check the limits."""
    before = sum(p.is_available for p in pods.values())
    for name in decision.delete:
        del pods[name]
    for i in range(decision.create):
        pods[f"n{step}-{i}"] = new(f"n{step}-{i}", **UNREADY)
    available = sum(p.is_available for p in pods.values())
    if decision.delete and not wanted.recreate:
        assert available >= min(before, wanted.replicas - wanted.unavailable)
    if decision.create:
        assert len(pods) <= wanted.replicas + (0 if wanted.recreate else wanted.surge)


@pytest.mark.parametrize(
    ("replicas", "rolling", "expected"),
    [
        (4, {"maxSurge": "25%", "maxUnavailable": "25%"}, (1, 1)),
        (5, {"maxSurge": "25%", "maxUnavailable": "25%"}, (2, 1)),
        (1, {}, (1, 0)),
        (3, {"maxSurge": 0, "maxUnavailable": 0}, (0, 1)),
    ],
)
def test_percentages_round_as_in_kubernetes(
    replicas: int, rolling: dict[str, Any], expected: tuple[int, int]
) -> None:
    found = wanted_of(deployment(replicas=replicas, strategy={"rollingUpdate": rolling}))
    assert (found.surge, found.unavailable) == expected


def test_the_hash_changes_with_the_template_only() -> None:
    first = template_hash(deployment())
    assert first == template_hash(deployment(replicas=5))
    assert first != template_hash(deployment(flags=("--deaf",)))


def test_available_means_ready_for_long_enough() -> None:
    labelled = pod(metadata={"labels": {LABEL_HASH: "h"}})
    since = 1767225600.0  # the factory's STAMP
    young = view(labelled, "h", now=since + 5, min_ready_s=10)
    assert (young.is_current, young.is_ready, young.is_available) == (True, True, False)
    assert view(labelled, "h", now=since + 10, min_ready_s=10).is_available


def stored(**status: Any) -> dict[str, Any]:
    made = deployment(replicas=2, progressDeadlineSeconds=60)
    return {**made, "metadata": {**made["metadata"], "generation": 3}, "status": status}


def progressing(status: Any) -> tuple[str, str]:
    found = condition({"status": status}, "Progressing")
    assert found is not None
    return found["status"], found["reason"]


def test_status_counts_pods_and_says_for_which_generation() -> None:
    status = status_of(stored(), [new("a"), old("b", **UNREADY), new("c", **GONE)], now=0.0)
    assert status["observedGeneration"] == 3
    counts = ("replicas", "updatedReplicas", "readyReplicas", "unavailableReplicas")
    assert [status[key] for key in counts] == [2, 1, 1, 1]
    assert status["terminatingReplicas"] == 1
    available = condition({"status": status}, "Available")
    assert available is not None
    assert available["message"] == "1 of 2 pods are available."


def test_a_rollout_that_stands_still_is_late_and_one_that_moves_is_not() -> None:
    first = status_of(stored(), [new("a", **UNREADY)], now=0.0)
    assert progressing(first) == ("True", "ReplicaSetUpdated")
    still = status_of(stored(**first), [new("a", **UNREADY)], now=61.0)
    assert progressing(still) == ("False", "ProgressDeadlineExceeded")
    moved = status_of(stored(**first), [new("a")], now=61.0)
    assert progressing(moved) == ("True", "ReplicaSetUpdated")
    done = status_of(stored(**moved), [new("a"), new("b")], now=62.0)
    assert progressing(done) == ("True", "NewReplicaSetAvailable")


def test_a_settled_status_does_not_change_with_time() -> None:
    first = status_of(stored(), [new("a"), new("b")], now=0.0)
    second = status_of(stored(**first), [new("a"), new("b")], now=500.0)
    assert status_of(stored(**second), [new("a"), new("b")], now=900.0) == second
