"""How often refused writes are tried again."""

from datetime import UTC, datetime, timedelta

from yaie_operator.reconcile.refusals import LONGEST_S, Refusals

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
