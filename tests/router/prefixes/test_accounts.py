"""What waits at engines, and what each got lately: queues, shares, branches."""

import pytest

from yaie_api.prefix import Load
from yaie_router.prefixes import branches
from yaie_router.prefixes.branches import Branches
from yaie_router.prefixes.queues import STALE_S, Queues
from yaie_router.prefixes.shares import Shares


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(clock: Clock) -> Queues:
    return Queues(clock)


def test_without_a_report_what_waits_is_what_was_sent(queues: Queues) -> None:
    first, second = queues.sent("a", 1000, 400), queues.sent("a", 50, 50)
    assert queues.tokens("a", None) == 450
    queues.computed(first)
    assert queues.tokens("a", None) == 50
    queues.ended(second)
    assert (queues.tokens("a", None), queues.in_flight("a")) == (0, 1)


def test_what_was_sent_since_the_report_comes_on_top_of_it(queues: Queues, clock: Clock) -> None:
    queues.sent("a", 1000, 400)
    clock.now_s += 1
    queues.reported("a")
    load = Load(running=1, queued_tokens=300)
    assert queues.tokens("a", load) == 300
    clock.now_s += 0.1
    queues.sent("a", 70, 70)
    assert queues.tokens("a", load) == 370


def test_of_those_that_wait_for_a_seat_the_cached_part_does_not_count(
    queues: Queues, clock: Clock
) -> None:
    queues.sent("a", 1000, 100)
    clock.now_s += 1
    queues.reported("a")
    assert queues.tokens("a", Load(waiting=1, running=8, queued_tokens=1000)) == 100


def test_an_old_report_says_nothing(queues: Queues, clock: Clock) -> None:
    queues.reported("a")
    clock.now_s += STALE_S + 1
    assert queues.tokens("a", Load(queued_tokens=9000)) == 0


def test_an_answer_that_ends_twice_is_counted_once(queues: Queues) -> None:
    sent = queues.sent("a", 10, 10)
    queues.computed(sent)
    queues.ended(sent)
    assert queues.in_flight("a") == 0


def test_what_ends_at_an_engine_that_is_gone_changes_nothing(queues: Queues) -> None:
    sent = queues.sent("a", 10, 10)
    queues.retain(set())
    queues.ended(sent)
    assert queues.in_flight("a") == 0


def test_requests_are_unreported_until_the_next_report(queues: Queues, clock: Clock) -> None:
    queues.sent("a", 10, 10)
    assert queues.unreported("a") == 1
    clock.now_s += 0.1
    queues.reported("a")
    assert queues.unreported("a") == 0


def test_routers_that_read_the_same_reports_have_the_same_shares() -> None:
    one, other = Shares(), Shares()
    for received in range(50):
        for shares in (one, other):
            shares.reported("a", received)
            shares.reported("b", 3 * received)
    assert one.of("ab") == other.of("ab")
    assert one.of("ab")["b"] > 2.5 * one.of("ab")["a"]


def test_old_requests_weigh_less() -> None:
    shares = Shares()
    for name in "ab":
        shares.reported(name, 0)
    shares.reported("a", 300)
    for received in range(1, 900):
        shares.reported("b", received)
    assert shares.of("ab")["b"] > 10 * shares.of("ab")["a"]


def test_an_engine_that_starts_again_begins_with_the_mean_of_the_others() -> None:
    shares = Shares()
    for received in (0, 40):
        for name in "abc":
            shares.reported(name, received)
    shares.reported("c", 0)
    found = shares.of("abc")
    assert found["c"] == pytest.approx((found["a"] + found["b"]) / 2)
    assert shares.of("abcd")["d"] == pytest.approx(sum(found.values()) / 3)


def test_counts_stay_finite() -> None:
    shares = Shares()
    shares.reported("a", 0)
    shares.reported("a", 10)
    shares.reported("a", 100_000)
    assert 0 < shares.of("a")["a"] < 1e6


def test_branches_are_bounded_and_keep_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_BRANCHES", 3)
    seen = Branches()
    for key in (1, 2, 1, 3, 4):
        seen.visit(key)
    assert [key for key in range(6) if seen.are_at(key)] == [1, 3, 4]
