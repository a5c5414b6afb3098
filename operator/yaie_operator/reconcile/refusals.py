"""Remembers which writes the API server refused or changed, so that the same ones are not sent all
the time.

A quota or a policy refuses for hours. The same writes are tried again after 10, 20, 40 … seconds
and at most every half hour: nine times in the first hour. Other writes are tried at once. Writes
that change by themselves are tried ten times in the first hour at most (`Streak`). A policy
that changes a field of ours would change it again after each write: what it made of one write
stays until the object or what we want of it changes.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from yaie_operator.cluster import Object
from yaie_operator.reconcile.observe import Ref
from yaie_operator.reconcile.plan import Apply, Remove, difference
from yaie_operator.resources.shared import digest

FIRST_S: Final = 10.0
LONGEST_S: Final = 1800.0
HOUR: Final = timedelta(hours=1)
EARLY: Final = 9
"""As many refusals in an hour end a streak's early tries. After the ninth in a row, the wait is
half an hour, so that the tenth is the last of the first hour."""


@dataclass(frozen=True)
class Refusal:
    """A refusal of writes. `writes`: their hash; `times`: how often in a row."""

    writes: str
    message: str
    at: datetime
    until: datetime
    times: int


def _refusal(writes: str, message: str, now: datetime, times: int) -> Refusal:
    """The one schedule: how long writes wait that were refused so many times in a row."""
    wait_s = min(FIRST_S * 2 ** min(times - 1, 16), LONGEST_S)
    return Refusal(writes, message, now, now + timedelta(seconds=wait_s), times)


class Refusals:
    """The last refusal of each key."""

    def __init__(self) -> None:
        self._of: dict[str, Refusal] = {}

    def pending(self, key: str, writes: str, now: datetime) -> Refusal | None:
        """The refusal because of which these writes must wait; None: send them."""
        known = self._of.get(key)
        waits = known is not None and known.writes == writes and now < known.until
        return known if waits else None

    def add(self, key: str, writes: str, message: str, now: datetime) -> Refusal:
        """Note that the writes were refused."""
        known = self._of.get(key)
        times = known.times + 1 if known is not None and known.writes == writes else 1
        self._of[key] = _refusal(writes, message, now, times)
        return self._of[key]

    def message(self, key: str) -> str:
        """The API server's message when it last refused the key's writes, or ""."""
        known = self._of.get(key)
        return known.message if known is not None else ""

    def clear(self, key: str) -> None:
        """Note that the key's writes were accepted, or that it has none (any more)."""
        self._of.pop(key, None)

    def refused_keys(self) -> frozenset[str]:
        """The keys whose last writes were refused."""
        return frozenset(self._of)

    def wait_s(self, key: str, now: datetime) -> float | None:
        """Seconds until the key's writes are tried again; None: none wait."""
        known = self._of.get(key)
        waits = known is not None and now < known.until
        return (known.until - now).total_seconds() if known is not None and waits else None


class Streak:
    """Refusals of writes that change by themselves: replicas with the load, a status with the pods.

    What was refused waits, and each refusal makes the wait of all of it longer. What was not
    refused yet is tried at once, while there are fewer than `EARLY` refusals in an hour.
    """

    def __init__(self) -> None:
        self._last: deque[Refusal] = deque(maxlen=EARLY)

    def pending(self, writes: str, now: datetime) -> Refusal | None:
        """The refusal because of which these writes must wait; None: send them."""
        latest = self._last[-1] if self.waits(now) else None
        if latest is None:
            return None
        known = next((one for one in reversed(self._last) if one.writes == writes), None)
        is_full = len(self._last) == EARLY and now - self._last[0].at < HOUR
        if known is None and not is_full:
            return None
        return replace(latest, message=(known or latest).message)

    def waits(self, now: datetime) -> bool:
        """Whether something that was refused waits."""
        return bool(self._last) and now < self._last[-1].until

    def add(self, writes: str, message: str, now: datetime) -> Refusal:
        """Note that the writes were refused. An hour without a refusal ends the streak."""
        latest = self._last[-1] if self._last else None
        times = latest.times + 1 if latest is not None and now - latest.at <= HOUR else 1
        self._last.append(_refusal(writes, message, now, times))
        return self._last[-1]

    def accept(self, writes: str) -> None:
        """Note that the writes were accepted. Others that were refused still wait."""
        others = [one for one in self._last if one.writes != writes]
        self._last = deque(others, maxlen=EARLY)


_ADVICE: Final = (
    (r"exceeded quota", "raise this quota, or delete what uses it up"),
    (r"being terminated", "create the model in another namespace: this one is being deleted"),
    (r'User ".*" cannot', "create the chart's roles again: the operator lacks this right"),
    (
        r"ownerRef on a resource you can't delete",
        "delete the object: the operator creates it again",
    ),
    (
        r"ValidatingAdmissionPolicy|admission webhook|PodSecurity",
        "change the spec so that this policy admits it, or the policy",
    ),
)


def explain(ref: Ref, message: str) -> str:
    """What a refusal says, and what to do about it. It does not change from try to try."""
    known = (advice for pattern, advice in _ADVICE if re.search(pattern, message))
    advice = next(known, "correct what it names, in the spec or in the cluster's policy")
    said = f"{ref.kind} {ref.name}: {message.rstrip('. ')}"
    return f"{said}; {advice}. It is tried again, at least every half hour."


@dataclass(frozen=True)
class Change:
    """What a policy made of a write of ours. `path`: the first field that differs from `wanted`,
    the hash of what we want; `found`: hash of what is stored.
    """

    ref: Ref
    path: str
    wanted: str
    found: str


class Changes:
    """Writes of ours that the API server stored in another form."""

    def __init__(self) -> None:
        self._of: dict[Ref, Change] = {}

    def note(self, write: Apply | Remove, stored: Object | None) -> Change | None:
        """Note what was stored after a write; None: every field is as we want it."""
        self._of.pop(write.ref, None)
        if isinstance(write, Remove) or stored is None:
            return None
        path = difference(write.manifest, stored)
        if not path:
            return None
        change = Change(write.ref, path, digest(write.manifest), digest(_contents(stored)))
        self._of[write.ref] = change
        return change

    def known(self, write: Apply | Remove) -> Change | None:
        """What became of the same write to the same object; None: it is worth sending."""
        change = self._of.get(write.ref)
        if change is None or isinstance(write, Remove) or write.observed is None or write.replaces:
            return None
        same = (digest(write.manifest), digest(_contents(write.observed)))
        return change if same == (change.wanted, change.found) else None

    def forget(self, namespace: str, name: str) -> None:
        """Note that a model is gone."""
        gone = [ref for ref in self._of if (ref.namespace, ref.name) == (namespace, name)]
        for ref in gone:
            del self._of[ref]


def tell(changes: Iterable[Change]) -> str:
    """One sentence about writes that were changed, "" if none was."""
    fields = ", ".join(f"{one.path} of {one.ref.kind} {one.ref.name}" for one in changes)
    return f"A policy of this cluster changes {fields}; that stays." if fields else ""


def _contents(obj: Object) -> Object:
    """What a writer decides about, without what the API server and controllers add."""
    rest = {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
    kept = {key: obj["metadata"].get(key) for key in ("labels", "ownerReferences")}
    return {**rest, **kept}
