"""Limits as an administrator writes them, and what a tenant is told that reaches one."""

import pytest

from yaie_api.errors import RateLimitError
from yaie_router.tenants.estimate import TokenEstimate
from yaie_router.tenants.limits import LimitBook, Limits, read_limits
from yaie_router.tenants.quotas import Quotas, duration


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def quotas(**limits: int) -> tuple[Quotas, Clock]:
    clock = Clock()
    found = Quotas(clock)
    found.book = LimitBook(tenants={"a": Limits(**limits)})
    return found, clock


def test_each_entry_is_one_tenants_and_default_is_for_the_others() -> None:
    book, wrong = read_limits(
        {
            "default": b'{"requestsPerMinute": 600}',
            "a": b'{"tokensPerMinute": 100000, "maxConcurrency": 8, "weight": 2}\n',
        },
        LimitBook(),
    )
    assert not wrong
    assert book.of("a") == Limits(tokens_per_minute=100_000, max_concurrency=8, weight=2)
    assert book.of("b") == book.of("") == Limits(requests_per_minute=600)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (b'{"tokens": 1}', "unknown field `tokens`"),
        (b'{"tokensPerMinute": 0}', ">= 1"),
        (b'{"tokensPerMinute": "1"}', "Expected `int | null`"),
        (b'{"weight": 0}', ">= 0.01"),
        (b"[]", "Expected `object`"),
        (b"rpm=60", "malformed"),
        (b"\xff", ""),
    ],
)
def test_for_a_wrong_entry_counts_what_was_there(entry: bytes, problem: str) -> None:
    before, _ = read_limits({"a": b'{"maxConcurrency": 1}'}, LimitBook())
    book, (wrong,) = read_limits({"a": entry, "b": b"{}"}, before)
    assert wrong.tenant == "a"
    assert problem in wrong.problem
    assert book.of("a") == before.of("a")
    again, _ = read_limits({"default": entry}, LimitBook(default=Limits(max_concurrency=2)))
    assert again.default == Limits(max_concurrency=2)


def test_a_tenant_at_its_limit_is_told_so_in_openai_s_words() -> None:
    found, clock = quotas(requests_per_minute=2, tokens_per_minute=1000)
    found.admit("a", 100)
    lease = found.admit("a", 700)
    assert lease.headers == {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "200",
        "x-ratelimit-reset-tokens": "48s",
    }
    with pytest.raises(RateLimitError) as refused:
        found.admit("a", 1)
    error = refused.value
    assert error.message == (
        "Rate limit reached for a on requests per min (RPM): Limit 2, Used 2, Requested 1. "
        "Please try again in 30s."
    )
    assert error.envelope()["error"]["type"] == "requests"
    assert error.envelope()["error"]["code"] == "rate_limit_exceeded"
    assert error.headers["retry-after"] == "30"
    assert error.headers["retry-after-ms"] == "30000"
    assert error.headers["x-ratelimit-remaining-tokens"] == "200"
    clock.now_s += 30.01
    with pytest.raises(RateLimitError, match="tokens per min"):
        found.admit("a", 900)
    found.admit("a", 600)
    assert found.admit("b", 10**9).headers == {}


def test_tokens_are_corrected_by_what_was_counted() -> None:
    found, clock = quotas(tokens_per_minute=1000)
    lease = found.admit("a", 100)
    lease.settle(1600)
    assert lease.headers["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(RateLimitError, match=r"try again in 36\.1s"):
        found.admit("a", 1)
    clock.now_s += 36.1
    generous = found.admit("a", 1)
    generous.settle(0)
    assert generous.headers["x-ratelimit-remaining-tokens"] == "1"


def test_requests_at_a_time_are_counted_and_a_refused_one_takes_nothing() -> None:
    found, clock = quotas(max_concurrency=2, requests_per_minute=3)
    first, _ = found.admit("a", 1), found.admit("a", 1)
    for _ in range(5):
        with pytest.raises(RateLimitError, match="concurrent requests: Limit 2, Used 2") as refused:
            found.admit("a", 1)
    assert refused.value.headers["x-ratelimit-remaining-requests"] == "1"
    clock.now_s += 10
    first.close()
    found.admit("a", 1)
    with pytest.raises(RateLimitError, match="concurrent requests"):
        found.admit("a", 1)


def test_changed_limits_count_at_once_and_forgive_nothing() -> None:
    found, _ = quotas(tokens_per_minute=1000)
    found.admit("a", 900)
    found.book = LimitBook(tenants={"a": Limits(tokens_per_minute=1100)})
    assert found.admit("a", 200).headers["x-ratelimit-remaining-tokens"] == "0"
    found.book = LimitBook()
    assert found.admit("a", 10**6).headers == {}


def test_tenants_that_are_gone_are_forgotten_when_they_rest() -> None:
    found, _ = quotas(max_concurrency=1)
    lease = found.admit("a", 1)
    found.retain(frozenset())
    with pytest.raises(RateLimitError):
        found.admit("a", 1)
    lease.close()
    found.retain(frozenset())
    assert not found._quotas


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0ms"), (0.0201, "21ms"), (1, "1s"), (1.41, "1.5s"), (59.99, "1m0s"), (360, "6m0s")],
)
def test_times_are_written_as_openai_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_estimates_come_near_to_what_engines_report() -> None:
    estimate = TokenEstimate()
    assert estimate.of("m", "a", 400, None) == 100 + 128
    assert estimate.of("m", "a", 400, 10) == 110
    for _ in range(200):
        estimate.learn("m", "a", 600, prompt=300, answer=20)
    assert estimate.of("m", "a", 600, None) == pytest.approx(320, abs=3)
    assert estimate.of("other", "b", 400, None) == 228
    estimate.retain_tenants(frozenset("b"))
    assert estimate.of("m", "a", 600, None) == pytest.approx(428, abs=3)
    estimate.retain(set())
    assert estimate.of("m", "a", 400, 0) == 100


def test_routers_share_a_limit_and_give_it_back_when_one_goes() -> None:
    found, _ = quotas(requests_per_minute=10, tokens_per_minute=1000, max_concurrency=3)
    found.share(4)
    leases = [found.admit("a", 10)]
    with pytest.raises(RateLimitError, match="concurrent requests: Limit 1"):
        found.admit("a", 10)
    assert leases[0].headers["x-ratelimit-limit-requests"] == "3"
    assert leases[0].headers["x-ratelimit-limit-tokens"] == "250"
    found.share(1)
    leases += [found.admit("a", 10), found.admit("a", 10)]
    assert leases[0].headers["x-ratelimit-limit-requests"] == "10"
    with pytest.raises(RateLimitError, match="concurrent requests: Limit 3"):
        found.admit("a", 10)


def test_no_share_is_nothing_and_no_limit_has_no_share() -> None:
    assert Limits(max_concurrency=1, weight=2).shared(100) == Limits(max_concurrency=1, weight=2)
    assert Limits().shared(3) == Limits()
