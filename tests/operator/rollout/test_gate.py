"""When a new engine's readiness gate is opened."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from yaie_api import names
from yaie_operator.reconcile.pods import diagnose
from yaie_operator.reconcile.rollout.gate import (
    ALONE,
    REACHED,
    UNTOLD,
    Opening,
    condition,
    opening,
    waits,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(*, started_s: float | None = 1, gated: bool = True, **more: str) -> dict[str, Any]:
    """An engine whose containers are ready since `started_s`; `more`: further conditions."""
    since = (NOW - timedelta(seconds=started_s or 0)).strftime("%Y-%m-%dT%H:%M:%SZ")
    started = {"type": "ContainersReady", "status": str(started_s is not None)}
    others = [{"type": key, "status": value} for key, value in more.items()]
    gates = {"readinessGates": [{"conditionType": names.CONDITION_ROUTED}]} if gated else {}
    scheduled = {"type": "PodScheduled", "status": "True"}
    conditions = [scheduled, started | {"lastTransitionTime": since}, *others]
    return {"metadata": {"name": "new"}, "spec": gates, "status": {"conditions": conditions}}


def routed(status: str) -> dict[str, Any]:
    return pod(**{names.CONDITION_ROUTED: status})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (pod(), True),
        (routed("False"), True),
        (routed("True"), False),
        (pod(started_s=None), False),
        (pod(gated=False), False),
        (pod() | {"metadata": {"name": "new", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_only_engines_that_lack_nothing_else_wait_for_the_gate(seen: Any, expected: bool) -> None:
    assert waits(seen) is expected


HAS, LACKS = frozenset({"new", "old"}), frozenset({"old"})


@pytest.mark.parametrize(
    ("reports", "started_s", "expected"),
    [
        ({"a": HAS, "b": HAS}, 1, REACHED),
        ({"a": HAS, "b": LACKS}, 1, None),
        ({"a": HAS, "b": LACKS}, 3600, None),
        ({"a": HAS, "b": None}, 29, None),
        ({"a": HAS, "b": None}, 30, UNTOLD),
        ({"a": LACKS, "b": None}, 30, None),
        ({"a": None}, 29, None),
        ({"a": None}, 30, UNTOLD),
        ({}, 29, None),
        ({}, 30, UNTOLD),
    ],
)
def test_while_others_serve_every_router_must_reach_the_engine_or_be_silent_for_long(
    reports: Any, started_s: float, expected: Opening | None
) -> None:
    found = opening(pod(started_s=started_s), reports, others_ready=True, now=NOW)
    assert found == expected


@pytest.mark.parametrize("reports", [{}, {"a": None}, {"a": LACKS}])
def test_an_engine_with_nobody_beside_it_waits_for_nobody(reports: Any) -> None:
    assert opening(pod(), reports, others_ready=False, now=NOW) == ALONE


def test_the_condition_says_why() -> None:
    told = condition(REACHED, NOW)
    assert (told["type"], told["status"]) == ("yaie.dev/routed", "True")
    assert told["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_an_engine_that_waits_for_the_routers_says_so() -> None:
    assert "answers, but not yet to every router" in diagnose(pod()).message
