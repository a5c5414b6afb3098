"""How often refused writes are tried again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from yaie_operator.reconcile.refusals import LONGEST_S, Refusals, Streak

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_same_writes_are_tried_at_most_ten_times_in_the_first_hour() -> None:
    refusals, now, tries = Refusals(), START, 0
    while now < START + timedelta(hours=1):
        if refusals.pending("key", "writes", now) is None:
            tries += 1
            refusals.add("key", "writes", "quota", now)
        now += timedelta(seconds=1)
    assert 5 <= tries <= 10
    assert (refusals.wait_s("key", now) or 0.0) <= LONGEST_S


def test_a_wait_that_is_over_is_no_wait() -> None:
    refusals = Refusals()
    refusals.add("key", "writes", "quota", START)
    assert refusals.wait_s("key", START + timedelta(seconds=10)) is None


def test_other_writes_are_tried_at_once_and_count_anew() -> None:
    refusals = Refusals()
    for _ in range(6):
        refusals.add("key", "old", "quota", START)
    assert refusals.pending("key", "new", START) is None
    assert refusals.pending("other", "old", START) is None
    refusals.add("key", "new", "quota", START)
    assert refusals.wait_s("key", START) == 10.0


def test_what_is_accepted_is_forgotten() -> None:
    refusals = Refusals()
    refusals.add("key", "writes", "quota", START)
    refusals.clear("key")
    assert refusals.pending("key", "writes", START) is None
    assert refusals.wait_s("key", START) is None


def tries_of(streak: Streak, content: Callable[[int], str], *, since_s: int = 0) -> int:
    """Tries in an hour in which other writes are wanted each second, and all are refused."""
    tries = 0
    for second in range(since_s, since_s + 3600):
        now = START + timedelta(seconds=second)
        if streak.pending(content(second), now) is None:
            tries += 1
            streak.add(content(second), "quota", now)
    return tries


@pytest.mark.parametrize(
    "content",
    [
        lambda _: "same",
        lambda second: str(second % 2),
        lambda second: str(second // 60 % 4),
        lambda second: str(second // 1000),
        str,
    ],
    ids=["same", "two in turn", "four in turn", "seldom another", "always another"],
)
def test_whatever_is_wanted_a_streak_has_at_most_ten_tries_in_the_first_hour(
    content: Callable[[int], str],
) -> None:
    streak = Streak()
    assert 5 <= tries_of(streak, content) <= 10
    assert tries_of(streak, content, since_s=3600) <= 10


def test_what_a_streak_has_not_refused_is_tried_at_once_and_the_rest_waits() -> None:
    streak = Streak()
    streak.add("six", "quota of six", START)
    assert streak.pending("five", START) is None
    streak.accept("five")
    waits = streak.pending("six", START)
    assert waits is not None
    assert (waits.message, waits.until) == ("quota of six", START + timedelta(seconds=10))


def test_a_streak_ends_with_an_acceptance_or_an_hour_of_silence() -> None:
    streak = Streak()
    for _ in range(6):
        streak.add("six", "quota", START)
    later = START + timedelta(hours=2)
    assert streak.add("six", "quota", later).times == 1
    streak.accept("six")
    assert not streak.waits(later)
