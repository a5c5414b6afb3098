"""Leader election by a Lease in the operator's namespace.

Only the local monotonic clock is used, as in client-go's leader election: a lease counts as expired
when this process has seen it unchanged for its whole duration. A leader that cannot renew its lease
ends its process before another may take over. A thread watches that deadline, so that a process
with a blocked event loop does not outlive its lease.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from yaie_api.logs import fields
from yaie_operator.cluster import ConflictError, NotFoundError, RefusedError, UnreachableError
from yaie_operator.watch.kube_api import KubeApi, Request

log = logging.getLogger(__name__)
Lease = dict[str, Any]


@dataclass(frozen=True)
class LeaderElectionTiming:
    """Times in seconds. renew_s < deadline_s < duration_s, so a leader ends before its lease."""

    duration_s: int = 15
    deadline_s: float = 10.0
    renew_s: float = 2.0


class Leases(Protocol):
    """Storage of the one Lease. Methods raise the errors of `cluster.Cluster`."""

    async def read(self) -> Lease | None: ...
    async def create(self, spec: dict[str, Any]) -> None: ...
    async def update(self, lease: Lease, spec: dict[str, Any]) -> None: ...


class KubeLeases:
    """The Lease object on an API server. Updates send the resourceVersion that was read."""

    def __init__(self, api: KubeApi, *, namespace: str, name: str) -> None:
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._metadata = {"name": name, "namespace": namespace}

    async def read(self) -> Lease | None:
        try:
            lease: Lease = await self._api.send(Request("GET", self._path))
        except NotFoundError:
            return None
        return lease

    async def create(self, spec: dict[str, Any]) -> None:
        body = self._lease(self._metadata, spec)
        await self._api.send(Request("POST", self._collection, body=body))

    async def update(self, lease: Lease, spec: dict[str, Any]) -> None:
        body = self._lease(lease["metadata"], spec)
        await self._api.send(Request("PUT", self._path, body=body))

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self._metadata['name']}"

    def _lease(self, metadata: dict[str, Any], spec: dict[str, Any]) -> Lease:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }


class Deadline:
    """Calls `expired` in its own thread if the deadline passes without being moved."""

    def __init__(self, expired: Callable[[], None], clock: Callable[[], float]) -> None:
        self._expired = expired
        self._clock = clock
        self._at = 0.0
        self._changed = threading.Condition()
        self._armed = False

    def move(self, at: float) -> None:
        """Set the deadline; the first call starts the thread."""
        with self._changed:
            self._at = at
            if not self._armed:
                self._armed = True
                threading.Thread(target=self._wait, name="lease-deadline", daemon=True).start()
            self._changed.notify()

    def disarm(self) -> None:
        with self._changed:
            self._armed = False
            self._changed.notify()

    def _wait(self) -> None:
        with self._changed:
            while self._armed and (left_s := self._at - self._clock()) > 0:
                self._changed.wait(left_s)
            expired = self._armed
        if expired:
            self._expired()


def end_process() -> None:
    """Exit at once, even if the event loop hangs: another process may take the lease soon."""
    log.critical("lease lost: this process ends")
    os._exit(1)


class Leader:
    """Competes for the lease, leads while holding it, and releases it."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        *,
        timing: LeaderElectionTiming = LeaderElectionTiming(),
        clock: Callable[[], float] = time.monotonic,
        expired: Callable[[], None] = end_process,
    ) -> None:
        self.is_leader = False
        self._leases = leases
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._deadline = Deadline(expired, clock)
        self._seen: tuple[str, float] = ("", 0.0)

    async def run(
        self, stop: asyncio.Event, lead: Callable[[asyncio.Event], Awaitable[None]]
    ) -> None:
        """Wait for the lease, run `lead(stop)` while renewing the lease, then release it.

        Returns without leading if `stop` is set first.
        """
        while not await self.attempt():
            if await _wait(stop, self._timing.renew_s):
                return
        log.info("leading", extra=fields(identity=self._identity))
        renewing = asyncio.create_task(self._renew())
        try:
            await lead(stop)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self.release()

    async def attempt(self) -> bool:
        """Take or renew the lease. False: another process holds it, or the request failed."""
        started = self._clock()
        try:
            held = await self._attempt(started)
        except (ConflictError, NotFoundError, UnreachableError) as error:
            log.warning("lease not renewed", extra=fields(error=str(error)))
            return False
        if held:
            # Count from the time of the request: the server wrote the lease later than that.
            self._deadline.move(started + self._timing.deadline_s)
        self.is_leader = self.is_leader or held
        return held

    async def _attempt(self, now: float) -> bool:
        lease = await self._leases.read()
        if lease is None:
            await self._leases.create(self._spec({}))
            return True
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self._identity} and not self._has_expired(lease, now):
            return False
        await self._leases.update(lease, self._spec(spec))
        return True

    def _has_expired(self, lease: Lease, now: float) -> bool:
        """Whether the lease was seen unchanged for its whole duration."""
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen[0] != version:
            self._seen = (version, now)
        duration_s = lease["spec"].get("leaseDurationSeconds", self._timing.duration_s)
        return now - self._seen[1] > float(duration_s)

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime(MICRO_TIME)
        is_mine = before.get("holderIdentity") == self._identity
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.duration_s,
            "acquireTime": before.get("acquireTime", now) if is_mine else now,
            "renewTime": now,
            "leaseTransitions": transitions + (0 if is_mine or not before else 1),
        }

    async def release(self) -> None:
        """Release the lease, so that a standby can lead at once."""
        self.is_leader = False
        self._deadline.disarm()
        try:
            lease = await self._leases.read()
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._leases.update(lease, spec)
        except (ConflictError, NotFoundError, RefusedError, UnreachableError) as error:
            log.warning("lease not released; it expires", extra=fields(error=str(error)))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._timing.renew_s)
            await self.attempt()


MICRO_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


async def _wait(stop: asyncio.Event, timeout_s: float) -> bool:
    """Wait for `stop`; whether it was set within the time."""
    try:
        async with asyncio.timeout(timeout_s):
            await stop.wait()
    except TimeoutError:
        return False
    return True
