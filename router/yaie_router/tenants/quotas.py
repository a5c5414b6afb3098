"""Holds each tenant to its limits: requests at a time, requests a minute, tokens a minute.

A request is charged with an estimate of its tokens when it comes, and with the difference when
an engine has counted them. Each router counts for itself, and lets its share of a limit through.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from yaie_api.errors import RateLimitError
from yaie_router.tenants.limits import LimitBook, Limits
from yaie_router.tenants.token_bucket import TokenBucket

_SMOOTHING: Final = 0.1
_LONGEST_RETRY_S: Final = 60.0


class Lease:
    """One admitted request's place. `settle` or not, `close` it in the end."""

    def __init__(self, quota: "_Quota", tokens: int, began_s: float) -> None:
        self._quota = quota
        self.tokens: Final = tokens
        """What it was charged with when it came."""
        self._began_s = began_s

    @property
    def headers(self) -> dict[str, str]:
        """What OpenAI's clients read about limits; empty where there are none."""
        return self._quota.headers()

    def settle(self, tokens: int) -> None:
        """Charge the difference to what it has taken in fact."""
        self._quota.correct(tokens - self.tokens)

    def close(self) -> None:
        """Give the place back."""
        self._quota.leave(self._began_s)


class Quotas:
    """What all tenants have taken. `book`: their limits; assign another one to change them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._book = LimitBook()
        self._routers = 1
        self._quotas: dict[str, _Quota] = {}

    @property
    def book(self) -> LimitBook:
        return self._book

    @book.setter
    def book(self, book: LimitBook) -> None:
        self._book = book
        self._apply()

    def share(self, routers: int) -> None:
        """Say how many routers share the limits."""
        if routers != self._routers:
            self._routers = routers
            self._apply()

    def admit(self, tenant: str, tokens: int) -> Lease:
        """Take a place, a request and an estimate of tokens for a tenant, or none of them.

        Raises:
            RateLimitError: one of the tenant's limits is reached.

        """
        quota = self._quotas.get(tenant)
        if quota is None:
            quota = _Quota(tenant, self._limits(tenant), self._clock)
            self._quotas[tenant] = quota
        return quota.admit(tokens)

    def _limits(self, tenant: str) -> Limits:
        return self._book.of(tenant).shared(self._routers)

    def _apply(self) -> None:
        for tenant, quota in self._quotas.items():
            quota.change(self._limits(tenant))

    def retain(self, tenants: frozenset[str]) -> None:
        """Forget other tenants, once nothing of them runs."""
        for name in [name for name, quota in self._quotas.items() if not quota.in_flight]:
            if name not in tenants:
                del self._quotas[name]


@dataclass(frozen=True)
class _Rate:
    """One limit by the minute. `words` is OpenAI's name of it, `kind` its short one."""

    bucket: TokenBucket
    kind: str
    words: str


class _Quota:
    """One tenant's."""

    def __init__(self, tenant: str, limits: Limits, clock: Callable[[], float]) -> None:
        self._tenant = tenant
        self._clock = clock
        self._limits = limits
        self._requests = _bucket(None, limits.requests_per_minute, clock())
        self._tokens = _bucket(None, limits.tokens_per_minute, clock())
        self._rates = self._named()
        self._mean_s = 1.0
        self.in_flight = 0

    def change(self, limits: Limits) -> None:
        now_s = self._clock()
        self._limits = limits
        self._requests = _bucket(self._requests, limits.requests_per_minute, now_s)
        self._tokens = _bucket(self._tokens, limits.tokens_per_minute, now_s)
        self._rates = self._named()

    def admit(self, tokens: int) -> Lease:
        now_s = self._clock()
        most = self._limits.max_concurrency
        if most is not None and self.in_flight >= most:
            wait_s = min(_LONGEST_RETRY_S, self._mean_s / most)
            told = f"concurrent requests: Limit {most}, Used {self.in_flight}, Requested 1"
            raise self._refused("requests", told, wait_s)
        charged = [(rate, tokens if rate.kind == "tokens" else 1) for rate in self._rates]
        for rate, amount in charged:
            if (wait_s := rate.bucket.wait_s(amount, now_s)) > 0:
                limit = rate.bucket.limit
                used = limit - rate.bucket.remaining(now_s)
                told = f"{rate.words}: Limit {limit}, Used {used}, Requested {amount}"
                raise self._refused(rate.kind, told, wait_s)
        for rate, amount in charged:
            rate.bucket.charge(amount, now_s)
        self.in_flight += 1
        return Lease(self, tokens, now_s)

    def correct(self, tokens: int) -> None:
        if self._tokens is not None:
            self._tokens.charge(tokens, self._clock())

    def leave(self, began_s: float) -> None:
        self.in_flight -= 1
        self._mean_s += _SMOOTHING * (self._clock() - began_s - self._mean_s)

    def headers(self) -> dict[str, str]:
        if not self._rates:
            return {}
        now_s = self._clock()
        told: dict[str, str] = {}
        for rate in self._rates:
            told[f"x-ratelimit-limit-{rate.kind}"] = str(rate.bucket.limit)
            told[f"x-ratelimit-remaining-{rate.kind}"] = str(rate.bucket.remaining(now_s))
            told[f"x-ratelimit-reset-{rate.kind}"] = duration(rate.bucket.reset_s(now_s))
        return told

    def _named(self) -> list[_Rate]:
        named = (
            (self._requests, "requests", "requests per min (RPM)"),
            (self._tokens, "tokens", "tokens per min (TPM)"),
        )
        return [_Rate(bucket, kind, words) for bucket, kind, words in named if bucket is not None]

    def _refused(self, kind: str, told: str, wait_s: float) -> RateLimitError:
        who = self._tenant or "this server"
        return RateLimitError(
            f"Rate limit reached for {who} on {told}. Please try again in {duration(wait_s)}.",
            kind=kind,
            retry_after_s=wait_s,
            limits=self.headers(),
        )


def duration(seconds: float) -> str:
    """A time as OpenAI writes it in these headers, rounded up: 20ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    tenths = math.ceil(round(seconds * 10, 3))
    minutes, rest = divmod(tenths, 600)
    return f"{minutes}m{rest / 10:g}s" if minutes else f"{rest / 10:g}s"


def _bucket(before: TokenBucket | None, limit: int | None, now_s: float) -> TokenBucket | None:
    if limit is None:
        return None
    if before is None:
        return TokenBucket(limit, now_s)
    return before if before.limit == limit else before.resized(limit, now_s)
