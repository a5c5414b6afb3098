"""The bucket's arithmetic, as a table, and its promise, over any sequence of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie_router.tenants.token_bucket import TokenBucket


def take(bucket: TokenBucket, amount: float, now_s: float) -> bool:
    """Take an amount, or nothing if it is not there, as a quota does."""
    if bucket.wait_s(amount, now_s) > 0:
        return False
    bucket.charge(amount, now_s)
    return True


@pytest.mark.parametrize(
    ("taken", "at_s", "wait_s", "remaining", "reset_s"),
    [
        ([], 0, 0, 60, 0),
        ([(0, 60)], 0, 1, 0, 60),
        ([(0, 60)], 10, 0, 10, 50),
        ([(0, 60)], 600, 0, 60, 0),
        ([(0, 60), (0.5, 1)], 0.5, 0.5, 0, 59.5),
        ([(0, 59.5)], 0, 0.5, 0, 59.5),
        ([(0, 600)], 0, 541, 0, 600),  # more than it holds: it passes when it is full
        ([(5, 60)], 0, 1, 0, 60),  # a clock that goes back gives nothing
    ],
)
def test_a_bucket_of_60_a_minute(
    taken: list[tuple[float, float]], at_s: float, wait_s: float, remaining: int, reset_s: float
) -> None:
    bucket = TokenBucket(60, 0.0)
    for moment_s, amount in taken:
        take(bucket, amount, moment_s)
    assert bucket.wait_s(1, at_s) == pytest.approx(wait_s)
    assert bucket.remaining(at_s) == remaining
    assert bucket.reset_s(at_s) == pytest.approx(reset_s)


def test_what_was_charged_beforehand_is_given_back_and_debts_are_waited_for() -> None:
    bucket = TokenBucket(60, 0.0)
    bucket.charge(90, 0.0)
    assert bucket.remaining(0.0) == 0
    assert bucket.wait_s(1, 0.0) == pytest.approx(31)
    bucket.charge(-1000, 0.0)
    assert bucket.remaining(0.0) == 60


def test_another_size_keeps_what_was_taken() -> None:
    bucket = TokenBucket(60, 0.0)
    take(bucket, 50, 0.0)
    assert bucket.resized(100, 0.0).remaining(0.0) == 50
    assert bucket.resized(40, 0.0).wait_s(1, 0.0) == pytest.approx(11 * 60 / 40)


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 1)), max_size=40),
    st.lists(st.floats(0, 20_000), max_size=5),
)
def test_no_window_has_more_than_the_limit_and_one_burst(
    limit: int, asks: list[tuple[float, float]], debts: list[float]
) -> None:
    """However requests are spread, and whatever is charged afterwards."""
    bucket, now_s, granted = TokenBucket(limit, 0.0), 0.0, [(0.0, 0.0)]
    for index, (pause_s, share) in enumerate(asks):
        now_s += pause_s
        if index < len(debts):
            bucket.charge(debts[index], now_s)
        if take(bucket, share * limit, now_s):
            granted.append((now_s, share * limit))
    for first, (began_s, _) in enumerate(granted):
        total = 0.0
        for at_s, amount in granted[first:]:
            total += amount
            assert total <= limit * (1 + (at_s - began_s) / 60) + 1e-6 * limit


@given(st.integers(1, 1000), st.floats(0.1, 2000))
def test_who_waits_as_long_as_told_gets_it(limit: int, amount: float) -> None:
    bucket = TokenBucket(limit, 0.0)
    take(bucket, limit, 0.0)
    wait_s = bucket.wait_s(amount, 0.0)
    assert not take(bucket, amount, wait_s * 0.99)
    assert take(bucket, amount, wait_s + 1e-6)
