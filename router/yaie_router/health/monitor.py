"""Watches over engines: keeps the state of outlier detection, asks suspects whether they are ready,
and frees the requests that wait for an endpoint that is lost.

The decisions are in `outlier_detection` and `watchdog`; here are the clock, the probes and the log.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from yaie_api.logs import fields
from yaie_api.names import PATH_READY
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint
from yaie_router.health.exhaustion import is_own
from yaie_router.health.outlier_detection import (
    FAILURES,
    HEALTHY,
    Event,
    Failure,
    Host,
    Limits,
    avoided,
    is_busy,
    step,
)
from yaie_router.health.watchdog import Watchdog

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
PROBE_PERIOD_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 1.0
MOST_PROBES: Final = 64
"""At a time. More suspects than that are asked in the next turns."""
TRIAL_S: Final = 3.0
"""A stream on trial that gives tokens for so long has passed, though it has not ended."""
_CALM: Final = frozenset({"sent", "answered", "finished", "abandoned", "pardoned", "probed"})
"""Events that leave a healthy endpoint as it is."""
STALLED_S: Final = 1.0
"""A stream without a token for so long shares what its engine is ejected for."""
_STALLS: Final = ("timeout", "probe")
_DRAINING: Final = b"draining"


@dataclass(frozen=True)
class Told:
    """Who is told what: `ejected(model, reason)` and `probed(model, outcome)`."""

    ejected: Callable[[str, Failure], None] = lambda _model, _reason: None
    probed: Callable[[str, str], None] = lambda _model, _outcome: None


@dataclass
class _Probes:
    running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    begun_s: dict[str, float] = field(default_factory=dict)


class Monitor:
    """The health of all endpoints. Those without trouble have no record."""

    def __init__(
        self,
        directory: Directory,
        watchdog: Watchdog,
        *,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits | None = None,
        told: Told | None = None,
        suspect_after_s: float = 5.0,
    ) -> None:
        self._directory = directory
        self.watchdog = watchdog
        self._clock = clock
        self._limits = limits or Limits()
        self._told = told or Told()
        self._suspect_after_s = suspect_after_s
        self._hosts: dict[str, Host] = {}
        self._probes = _Probes()

    def sent(self, endpoint: str) -> float:
        """Note that a request goes to an endpoint. Return the time, for `tell`."""
        self.tell(endpoint, "sent")
        return self._clock()

    def tell(self, endpoint: str, event: Event, began_s: float = math.inf) -> None:
        """Take note of what an endpoint did. An ejection frees those that wait there.

        `began_s`: when the request was sent that the event is about.
        """
        if endpoint not in self._hosts and event in _CALM:
            return  # nearly always, and there is nothing to change
        before = self._hosts.get(endpoint, HEALTHY)
        after = step(before, event, self._clock(), self._limits, began_s=began_s)
        if after == HEALTHY:
            self._hosts.pop(endpoint, None)
        else:
            self._hosts[endpoint] = after
        if after.ejections > before.ejections and after.reason is not None:
            self._ejected(endpoint, after.reason)

    @property
    def is_calm(self) -> bool:
        """Whether no endpoint has a record: nothing is avoided, and none is busy."""
        return not self._hosts

    def avoided(self, names: Iterable[str]) -> set[str]:
        """Return those of a model's endpoints that must get no request now."""
        if not self._hosts:
            return set()
        return avoided(self._hosts, names, self._clock(), self._limits)

    def busy(self, names: Iterable[str]) -> set[str]:
        """Return those that asked a moment ago to be tried later."""
        if not self._hosts:
            return set()
        now_s = self._clock()
        return {name for name in names if is_busy(self._hosts.get(name, HEALTHY), now_s)}

    def ejected(self, names: Iterable[str]) -> int:
        """Count those that are ejected or on trial."""
        return sum(self._hosts.get(name, HEALTHY).is_ejected for name in names)

    def changed(self) -> None:
        """Forget endpoints that no longer exist, and free the requests that wait for them."""
        known = {
            endpoint.name
            for model in self._directory.all()
            for endpoint in (*model.endpoints, *model.resting)
        }
        for name in self._hosts.keys() - known:
            del self._hosts[name]
        self.watchdog.retain(known)
        for name in self.watchdog.waited_for():
            if name not in known and self._others(name):
                self.watchdog.release(name)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self.watchdog.end_overdue()
                self._pass_trials()
                self._probe(session)
        finally:
            for task in self._probes.running.values():
                task.cancel()

    def _ejected(self, endpoint: str, reason: Failure) -> None:
        model = self._model_of(endpoint)
        log.warning("endpoint ejected", extra=fields(endpoint=endpoint, model=model, reason=reason))
        self._told.ejected(model, reason)
        names = self._names_beside(endpoint)
        if endpoint in self.avoided(names):
            self.watchdog.release(endpoint)
            if reason in _STALLS:
                self.watchdog.release_stalled(endpoint, STALLED_S)

    def _others(self, endpoint: str) -> bool:
        """Whether the model of those that wait for this endpoint has another one."""
        waits = self.watchdog.waits_of(endpoint)
        names = {wait.model for wait in waits}
        return any(model.endpoints for model in self._directory.all() if model.name in names)

    def _names_beside(self, endpoint: str) -> list[str]:
        for model in self._directory.all():
            names = [one.name for one in model.endpoints]
            if endpoint in names:
                return names
        return []

    def _model_of(self, endpoint: str) -> str:
        for model in self._directory.all():
            if any(one.name == endpoint for one in model.endpoints):
                return model.name
        return ""

    def _pass_trials(self) -> None:
        now_s = self._clock()
        for name, host in list(self._hosts.items()):
            if host.on_trial and any(
                wait.is_committed
                and wait.began_s >= host.until_s
                and wait.since_s - wait.began_s >= TRIAL_S
                and now_s - wait.since_s < TRIAL_S
                for wait in self.watchdog.waits_of(name)
            ):
                self.tell(name, "finished")

    def _probe(self, session: aiohttp.ClientSession) -> None:
        """Ask those that must show that they are there: suspects, and the unreachable."""
        asked = self.watchdog.suspects(self._suspect_after_s)
        troubled = {name for name, host in self._hosts.items() if _needs_probe(host)}
        if troubled:
            asked |= {
                endpoint
                for model in self._directory.all()
                for endpoint in model.endpoints
                if endpoint.name in troubled
            }
        now_s, probes = self._clock(), self._probes
        for name in probes.begun_s.keys() - {endpoint.name for endpoint in asked}:
            del probes.begun_s[name]
        for endpoint in sorted(asked, key=lambda one: probes.begun_s.get(one.name, 0.0)):
            if len(probes.running) >= MOST_PROBES:
                return
            due_s = probes.begun_s.get(endpoint.name, -PROBE_PERIOD_S) + PROBE_PERIOD_S
            if endpoint.name not in probes.running and now_s >= due_s:
                probes.begun_s[endpoint.name] = now_s
                task = asyncio.create_task(self._ask(session, endpoint))
                probes.running[endpoint.name] = task

    async def _ask(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        try:
            is_ready = await _is_ready(session, endpoint)
        finally:
            self._probes.running.pop(endpoint.name, None)
        if is_ready is None:
            return
        self.tell(endpoint.name, "probed" if is_ready else "probe")
        self._told.probed(self._model_of(endpoint.name), "ready" if is_ready else "failed")


def _needs_probe(host: Host) -> bool:
    return host.unreachable or host.failed[FAILURES.index("probe")] > 0


async def _is_ready(session: aiohttp.ClientSession, endpoint: Endpoint) -> bool | None:
    """Whether `/readyz` is answered; None: the router could not ask. One that drains still finishes
    what it has: it is no outlier. Nor is a server that has no such path.
    """
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    try:
        async with session.get(
            endpoint.base_url + PATH_READY, timeout=timeout, allow_redirects=False
        ) as answer:
            return answer.status < 500 or _DRAINING in await answer.content.read(4096)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return None if is_own(error) else False
