"""Outlier detection: which endpoints get no requests for a while, decided from what they did.

    healthy ──a threshold──▶ ejected ──time──▶ half-open: one request on trial ──passes──▶ healthy
                                ▲  unreachable: until a probe is answered     │
                                └───────────────────fails: twice as long──────┘

Pure: `step` takes one endpoint's state, an event and the time, and returns the next state;
`avoided` looks at all endpoints of a model. The names are those of Envoy's outlier detection. What
only says that an engine is busy (429, 503 with Retry-After) ejects nothing, and a client's mistake
(any other 4xx) says nothing at all.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

Failure = Literal["connect", "5xx", "disconnect", "timeout", "probe"]
"""What an endpoint failed at: no connection; an answer that says so; an answer that broke; a token
that did not come in time; no answer to `/readyz`.
"""
Cause = Literal["connect", "5xx", "disconnect", "timeout", "busy", "lost"]
"""Why a request is sent again. `lost`: its endpoint has gone or was ejected while it waited."""

Event = Literal["sent", "answered", "finished", "abandoned", "pardoned", "busy", "probed"] | Failure
"""Of one endpoint. `sent`: a request goes there. `answered`: its first token or answer came, below
500. `finished`: an answer ended whole. `abandoned`: the request showed nothing about the endpoint.
`pardoned`: another endpoint answered 5xx to the same request. `probed`: `/readyz` was answered.
"""
FAILURES: Final[tuple[Failure, ...]] = ("connect", "5xx", "disconnect", "timeout", "probe")
AFTER_FIRST_TOKEN: Final[frozenset[Failure]] = frozenset({"disconnect", "timeout"})
"""What an endpoint can do to every stream although it gives each a first token."""


@dataclass(frozen=True)
class Limits:
    """Thresholds in failures of one kind in a row; times in seconds."""

    consecutive_connect: int = 1
    consecutive_5xx: int = 5
    consecutive_disconnect: int = 3
    consecutive_timeout: int = 3
    consecutive_probe: int = 2
    base_ejection_time_s: float = 1.0
    max_ejection_time_s: float = 8.0
    max_ejection_percent: int = 50
    busy_s: float = 1.0

    def threshold(self, failure: Failure) -> int:
        return {
            "connect": self.consecutive_connect,
            "5xx": self.consecutive_5xx,
            "disconnect": self.consecutive_disconnect,
            "timeout": self.consecutive_timeout,
            "probe": self.consecutive_probe,
        }[failure]


@dataclass(frozen=True)
class Host:
    """One endpoint's record. `failed`: failures in a row, by kind, in the order of `FAILURES`.

    `ejections`: how often in a row it was ejected; 0: it is not. `reason`: of the last ejection.
    `unreachable`: only an answered probe opens it again. `until_s`: no request before.
    `on_trial`: a request is there that decides whether it is healthy.
    """

    failed: tuple[int, ...] = (0,) * len(FAILURES)
    ejections: int = 0
    reason: Failure | None = None
    unreachable: bool = False
    until_s: float = 0.0
    on_trial: bool = False
    busy_until_s: float = 0.0

    @property
    def is_ejected(self) -> bool:
        return self.ejections > 0


HEALTHY: Final = Host()


def step(
    host: Host, event: Event, now_s: float, limits: Limits, *, began_s: float = math.inf
) -> Host:
    """Return the endpoint's state after an event.

    `began_s`: when the request was sent that the event is about. What was sent before an ejection
    says nothing about the time after it.
    """
    if host.is_ejected and began_s < host.until_s:
        return host
    match event:
        case "sent":
            after = replace(host, on_trial=_may_try(host, now_s))
        case "answered":
            after = _answered(host)
        case "finished":
            after = replace(HEALTHY, busy_until_s=host.busy_until_s)
        case "abandoned":
            after = replace(host, on_trial=False)
        case "pardoned":
            after = replace(host, failed=_changed(host.failed, "5xx", -1))
        case "busy":
            after = replace(host, on_trial=False, busy_until_s=now_s + limits.busy_s)
        case "probed":
            after = _probed(host, now_s)
        case _:
            after = _failed(host, event, now_s, limits)
    return after


def avoided(
    hosts: Mapping[str, Host], names: Iterable[str], now_s: float, limits: Limits
) -> set[str]:
    """Return those of a model's endpoints that must get no request now.

    At most `max_ejection_percent` of them, the longest ejected first; unreachable ones are always
    avoided. If that would be all of them, none is: a try may succeed, a refusal cannot.
    """
    asked = set(names)
    out = {name for name in asked if name in hosts and _is_out(hosts[name], now_s)}
    if not out:
        return out
    unreachable = {name for name in out if hosts[name].unreachable}
    room = max(0, len(asked) * limits.max_ejection_percent // 100 - len(unreachable))
    failing = sorted(out - unreachable, key=lambda name: (-hosts[name].ejections, name))
    out = unreachable | set(failing[:room])
    return out if out != asked else set()


def is_busy(host: Host, now_s: float) -> bool:
    """Whether it asked a moment ago to be tried later."""
    return now_s < host.busy_until_s


def _answered(host: Host) -> Host:
    """Clear what a first token disproves."""
    if host.is_ejected and host.reason in AFTER_FIRST_TOKEN:
        return host  # only a whole answer does
    counts = zip(FAILURES, host.failed, strict=True)
    failed = tuple(count if kind in AFTER_FIRST_TOKEN else 0 for kind, count in counts)
    return replace(HEALTHY, failed=failed, busy_until_s=host.busy_until_s)


def _probed(host: Host, now_s: float) -> Host:
    failed = _changed(host.failed, "probe", -host.failed[FAILURES.index("probe")])
    if not host.unreachable:
        return replace(host, failed=failed)
    return replace(host, failed=failed, unreachable=False, until_s=now_s)


def _failed(host: Host, failure: Failure, now_s: float, limits: Limits) -> Host:
    failed = _changed(host.failed, failure, 1)
    enough = failed[FAILURES.index(failure)] >= limits.threshold(failure)
    is_gone = failure in ("connect", "probe")
    if host.is_ejected and failure == "probe":
        return replace(host, failed=failed, unreachable=host.unreachable or enough)
    if not (host.is_ejected or enough):
        return replace(host, failed=failed)
    pause_s = limits.base_ejection_time_s * 2.0 ** min(host.ejections, 10)
    return replace(
        host,
        failed=failed,
        ejections=host.ejections + 1,
        reason=failure,
        unreachable=host.unreachable or is_gone,
        until_s=now_s + min(limits.max_ejection_time_s, pause_s),
        on_trial=False,
    )


def _may_try(host: Host, now_s: float) -> bool:
    """Whether it is half-open: one request may find out whether it is healthy."""
    return host.is_ejected and not host.unreachable and now_s >= host.until_s


def _is_out(host: Host, now_s: float) -> bool:
    return host.is_ejected and (host.on_trial or not _may_try(host, now_s))


def _changed(failed: tuple[int, ...], failure: Failure, by: int) -> tuple[int, ...]:
    counts = zip(FAILURES, failed, strict=True)
    return tuple(max(0, count + by) if kind == failure else count for kind, count in counts)
