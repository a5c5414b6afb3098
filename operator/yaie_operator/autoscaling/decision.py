"""Decides how many engines a model should have now. Pure.

load asks for more ─────────────────────────▶ more at once (not while some find no place)
load asks for fewer, for a whole window ────▶ the window's maximum (not while one starts)
nothing was asked for idleSeconds ──────────▶ zero
a request comes at zero ────────────────────▶ engines for what waits, at least one
samples are missing or old ─────────────────▶ never fewer
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from yaie_operator.autoscaling.history import STALE_S, Ask, Engines, History, Policy, Sample


class Why(StrEnum):
    """Why the replicas change or stay."""

    # They change.
    ABOVE_TARGET = "AboveTarget"
    BELOW_TARGET = "BelowTarget"
    FROM_ZERO = "FromZero"  # requests wait and no engine runs
    TO_ZERO = "ToZero"  # nothing was asked for idleSeconds
    OUT_OF_BOUNDS = "OutOfBounds"  # spec.replicas was below min or above max
    OVERRIDDEN = "ReplicasOverridden"  # another writer had set spec.replicas

    # They stay.
    SUSPENDED = "Suspended"
    NO_METRICS = "MetricsMissing"
    ON_TARGET = "OnTarget"
    STABILIZING = "Stabilizing"  # fewer are needed, but not for long enough yet
    STARTING = "EnginesStarting"  # fewer are needed, but an engine that starts is not stopped
    AT_MAXIMUM = "AtMaximum"  # the load asks for more than max
    NO_CAPACITY = "NoCapacity"  # engines find no place, or fail: more would not help


LATENCY_TARGETS = frozenset({"queueSeconds", "ttftP95Seconds"})


@dataclass(frozen=True)
class Decision:
    """`replicas`: what spec.replicas should be. `wanted`: what the load asks for, without bounds.

    `target`: the target that asked for it, "" if none did.
    """

    replicas: int
    why: Why
    message: str
    wanted: int
    target: str = ""


@dataclass(frozen=True)
class Past:
    """A change that was made earlier, as told in the model's status."""

    at_s: float
    before: int
    after: int
    target: str
    active: float


def knee(past: Sequence[Past]) -> float | None:
    """Requests per engine at which a latency target was missed last; None: not known."""
    missed = [p for p in past if p.target in LATENCY_TARGETS and p.after > p.before > 0]
    last = max(missed, key=lambda p: p.at_s, default=None)
    return last.active / last.before if last is not None and last.active else None


def decide(history: History, policy: Policy, engines: Engines, now: float) -> Decision:
    """The replicas that the model should have. `history` ends with the latest sample."""
    current = engines.current
    if policy.suspended:
        return _stay(current, Why.SUSPENDED, "spec.suspend is true; replicas stay as they are.")
    if current > policy.most or current < policy.least:
        bounded = min(max(current, policy.least), policy.most)
        told = f"spec.replicas was {current}, outside of {policy.least} to {policy.most}."
        return Decision(bounded, Why.OUT_OF_BOUNDS, told, bounded)
    sample = history.latest
    if sample is None or now - sample.at_s > STALE_S:
        told = f"No metrics for {STALE_S:.0f} s; replicas stay at {current}."
        return _stay(current, Why.NO_METRICS, told)
    if current == 0:
        return _at_zero(history.asks[-1], policy, sample)
    if _has_idled(history, policy, now):
        return Decision(0, Why.TO_ZERO, f"No request for {policy.idle_s:g} s.", 0)
    return _by_load(history, policy, engines, now)


def _at_zero(ask: Ask, policy: Policy, sample: Sample) -> Decision:
    if sample.is_idle or not (sample.active or sample.pending or sample.arrivals):
        return _stay(0, Why.ON_TARGET, "No request waits.")
    replicas = min(max(1, ask.replicas), policy.most)
    waiting = max(sample.pending, sample.active, sample.arrivals)
    came = "1 request" if waiting == 1 else f"{waiting:.0f} requests"
    told = f"{came} came while no engine ran."
    return Decision(replicas, Why.FROM_ZERO, told, ask.replicas, ask.target)


def _has_idled(history: History, policy: Policy, now: float) -> bool:
    since_s = history.idle_since_s
    return policy.idle_s is not None and since_s is not None and now - since_s >= policy.idle_s


def _by_load(history: History, policy: Policy, engines: Engines, now: float) -> Decision:
    current, least = engines.current, max(1, policy.least)
    ask = history.asks[-1]
    if ask.replicas > current:
        return _more(ask, policy, engines)
    steady = max(history.asks, key=lambda a: a.replicas)
    fewer = min(max(steady.replicas, least), current)
    if max(ask.replicas, least) >= current:
        return _stay(current, Why.ON_TARGET, f"The load asks for {current}.", ask)
    why, told = _hold(history, policy, engines, fewer, now)
    if why is not None:
        return _stay(current, why, told, ask)
    told = f"For {policy.stabilization_s:g} s, {steady.target} asked for at most {fewer}."
    return Decision(fewer, Why.BELOW_TARGET, told, ask.replicas, steady.target)


def _more(ask: Ask, policy: Policy, engines: Engines) -> Decision:
    current = engines.current
    told = f"{ask.target} asks for {ask.replicas}"
    if current >= policy.most:
        return _stay(current, Why.AT_MAXIMUM, f"{told}; spec.autoscaling.max is {current}.", ask)
    if engines.blocked:
        told += f", but {engines.blocked} of {current} do not start; see EnginesReady."
        return _stay(current, Why.NO_CAPACITY, told, ask)
    replicas = min(ask.replicas, policy.most)
    return Decision(replicas, Why.ABOVE_TARGET, f"{told}.", ask.replicas, ask.target)


def _hold(
    history: History, policy: Policy, engines: Engines, fewer: int, now: float
) -> tuple[Why | None, str]:
    """Why the engines must not become fewer now; None: they may."""
    covered_s = history.covered_since_s
    if covered_s is None:
        return Why.NO_METRICS, "Not every router and engine answers; replicas do not fall."
    if fewer == engines.current or now - covered_s < policy.stabilization_s:
        return Why.STABILIZING, "Fewer would do now; see scaleDown.stabilizationSeconds."
    if engines.starting:
        return Why.STARTING, "Fewer would do, but engines are starting and are not stopped."
    return None, ""


def _stay(current: int, why: Why, message: str, ask: Ask | None = None) -> Decision:
    wanted, target = (ask.replicas, ask.target) if ask else (current, "")
    return Decision(current, why, message, wanted, target)
