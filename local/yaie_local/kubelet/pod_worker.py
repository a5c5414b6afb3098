"""Runs one pod on this machine: starts its process, probes it, restarts it with back-off, ends it.

    start ──▶ running ──exit or failed probe──▶ back-off ──▶ start …
                 └──end()──▶ preStop ──▶ SIGTERM ──grace──▶ SIGKILL ──▶ ended

The worker owns the pod's status and process; the kubelet owns the workers.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import aiohttp

from yaie_api import names
from yaie_api.logs import fields
from yaie_local import logfile
from yaie_local.apiserver.store import Store
from yaie_local.kubelet import containers, processes, volumes
from yaie_local.kubelet.containers import ConfigError, Lookup, Place
from yaie_local.kubelet.pod_status import ContainerState, placed
from yaie_local.kubelet.probes import EAGER_PERIOD_S, Probe, failure
from yaie_local.kubelet.publish import Published
from yaie_local.objects import Ref, name_of, ref
from yaie_local.state import StateFolder
from yaie_operator.cluster import Object

log = logging.getLogger(__name__)

MAX_RESTART_GRACE_S: Final = 30.0
"""Longest grace period after a failed probe: such a process has no requests to finish."""
_POLL_S: Final = 0.1
_DRAIN_S: Final = 1.0
_MESSAGE_LINES: Final = 5
_MESSAGE_BYTES: Final = 4096


@dataclass(frozen=True)
class BackOff:
    """Waits between restarts: they double with each crash; a run of `good_run_s` resets them."""

    base_s: float = 1.0
    max_s: float = 60.0
    good_run_s: float = 600.0

    def delay_s(self, crashes: int) -> float:
        """Seconds to wait after `crashes` (at least 1) crashes in a row."""
        return float(min(self.max_s, self.base_s * 2 ** min(crashes - 1, 30)))


@dataclass(frozen=True)
class Host:
    """Objects that all workers share."""

    store: Store
    state: StateFolder
    session: aiohttp.ClientSession
    base_env: Mapping[str, str]
    back_off: BackOff = field(default_factory=BackOff)
    clock: Callable[[], float] = time.time


class PodWorker:
    """Runs one pod until `end` is called. `run` returns when no process is left."""

    def __init__(
        self, pod: Object, host: Host, *, address: str, gpus: list[str], published: Published | None
    ) -> None:
        self.pod = pod
        self._host = host
        self._address = address
        self._gpus = gpus
        self._published = published
        self._container = ContainerState.creating()
        self._ending = asyncio.Event()
        self._deadline = float("inf")
        self._skip_pre_stop = False
        self._crashes = 0

    def end(self, grace_s: float, *, at_once: bool = False) -> None:
        """Make the pod end within `grace_s`; a later call may shorten the time.

        `at_once` skips the preStop hook.
        """
        self._deadline = min(self._deadline, time.monotonic() + grace_s)
        self._skip_pre_stop = self._skip_pre_stop or at_once
        self._ending.set()

    def refresh(self) -> None:
        """Store the pod's status anew: a readiness gate may have been opened."""
        self._set(self._container)

    @property
    def is_published(self) -> bool:
        """Whether the pod's process inherits the published socket."""
        return self._published is not None

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    async def run(self) -> None:
        """Start and restart the container until `end` is called."""
        output = logfile.LogFile(self._log)
        try:
            while not self.is_ending:
                await self._attempt(output)
                await self._pause()
        finally:
            output.close()

    async def _attempt(self, output: logfile.LogFile) -> None:
        """Run the container once."""
        self._set(self._container)
        try:
            launch = self._launch()
            child = await processes.start(launch, volumes.folder_of(self.pod, self._host.state))
        except (ConfigError, OSError) as error:
            self._crashes += 1
            self._set(self._container.waiting("CreateContainerConfigError", str(error)))
            return
        self._set(self._container.running(self._host.clock()))
        log.info("started", extra=fields(pod=name_of(self.pod), pid=child.pid))
        began = time.monotonic()
        written = logfile.Follower(self._log)
        copying = asyncio.create_task(output.copy(child.output))
        reason = await self._supervise(child)
        await _drain(copying)
        if time.monotonic() - began > self._host.back_off.good_run_s:
            self._crashes = 0
        self._crashes += 1
        self._note_end(child.exited.result(), reason, written)

    def _launch(self) -> processes.Launch:
        """Prepare volumes, environment and command of the pod's process.

        Raises:
            ConfigError: the pod cannot run on this machine as it is written.

        """
        state, pod = self._host.state, self.pod
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            Probe.of(pod, name)
        place = Place(
            self._address, volumes.prepare(pod, state, self._lookup), self._termination_log
        )
        self._termination_log.unlink(missing_ok=True)
        env = containers.environment(pod, place, self._lookup, self._base_env())
        return processes.Launch(
            argv=containers.command(pod, env, place),
            env=env,
            cwd=volumes.folder_of(pod, state),
            fds=() if self._published is None else (self._published.socket.fileno(),),
        )

    def _base_env(self) -> dict[str, str]:
        env = {
            **self._host.base_env,
            names.ENV_API_SOCKET: str(self._host.state.socket),
            "CUDA_VISIBLE_DEVICES": ",".join(self._gpus),
            "PYTHONUNBUFFERED": "1",
        }
        if self._published is not None:
            env |= self._published.environ
            env[names.ENV_LISTEN_FD] = str(self._published.socket.fileno())
        return env

    @property
    def _lookup(self) -> Lookup:
        namespace = self.pod["metadata"]["namespace"]
        store = self._host.store
        return lambda kind, name: store.get(Ref("v1", kind, namespace, name))

    async def _supervise(self, child: processes.Child) -> str:
        """Wait until the process has ended, or end it; returns the reason."""
        ending = asyncio.create_task(self._ending.wait())
        health = asyncio.create_task(self._health())
        try:
            await asyncio.wait({child.exited, ending, health}, return_when=asyncio.FIRST_COMPLETED)
            if child.exited.done():
                return "Completed" if child.exited.result() == 0 else "Error"
            if self.is_ending:
                await self._stop(child)
                return "Terminated"
            return await self._restart(child, health.result())
        finally:
            child.signal(signal.SIGKILL)
            ending.cancel()
            health.cancel()
            await asyncio.gather(ending, health, child.exited, return_exceptions=True)

    async def _restart(self, child: processes.Child, why: str) -> str:
        """End a container whose probe failed, earlier if the pod's own deadline is earlier."""
        log.warning("probe failed", extra=fields(pod=name_of(self.pod), reason=why))
        self._set(replace(self._container, is_ready=False, is_started=False))
        own_s = self.pod["spec"].get("terminationGracePeriodSeconds", MAX_RESTART_GRACE_S)
        grace_s = min(own_s, MAX_RESTART_GRACE_S)
        await self._end_process(child, lambda: time.monotonic() + grace_s)
        return why

    async def _stop(self, child: processes.Child) -> None:
        """Run the preStop hook, then SIGTERM and SIGKILL, all before the deadline."""
        hook = self.pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {})
        pause_s = hook.get("sleep", {}).get("seconds", 0)
        until = time.monotonic() + pause_s
        while not self._skip_pre_stop and time.monotonic() < min(until, self._deadline):
            await asyncio.wait({child.exited}, timeout=_POLL_S)
            if child.exited.done():
                return
        await self._end_process(child, lambda: self._deadline)

    async def _end_process(self, child: processes.Child, deadline: Callable[[], float]) -> None:
        """Send SIGTERM, then SIGKILL at the deadline, which may become earlier meanwhile."""
        own = deadline()
        child.signal(signal.SIGTERM)
        while not child.exited.done() and time.monotonic() < min(own, self._deadline, deadline()):
            await asyncio.wait({child.exited}, timeout=_POLL_S)
        child.signal(signal.SIGKILL)
        await child.exited

    async def _health(self) -> str:
        """Probe until the container must be restarted; returns the reason."""
        startup = Probe.of(self.pod, "startupProbe")
        if startup is not None:
            why = await self._wait_started(startup)
            if why is not None:
                return why
        self._set(replace(self._container, is_started=True))
        readiness = asyncio.create_task(self._watch_readiness())
        try:
            return await self._watch_liveness()
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)

    async def _wait_started(self, probe: Probe) -> str | None:
        deadline = time.monotonic() + probe.limit_s
        why: str | None = "not tried"
        while time.monotonic() < deadline:
            await asyncio.sleep(min(EAGER_PERIOD_S, probe.period_s))
            why = await failure(self._host.session, probe, self._address)
            if why is None:
                return None
        return f"startup probe failed for {probe.limit_s:g} s: {why}"

    async def _watch_readiness(self) -> None:
        probe = Probe.of(self.pod, "readinessProbe")
        if probe is None:
            self._set(replace(self._container, is_ready=True))
            return
        failures = 0
        while True:
            why = await failure(self._host.session, probe, self._address)
            failures = 0 if why is None else failures + 1
            if why is None or failures >= probe.failures:
                self._set(replace(self._container, is_ready=why is None))
            eager = min(EAGER_PERIOD_S, probe.period_s)
            await asyncio.sleep(probe.period_s if self._container.is_ready else eager)

    async def _watch_liveness(self) -> str:
        probe = Probe.of(self.pod, "livenessProbe")
        if probe is None:
            await asyncio.Event().wait()
            raise AssertionError("unreachable: nobody sets that event")
        await asyncio.sleep(probe.delay_s)
        failures = 0
        while True:
            await asyncio.sleep(probe.period_s)
            why = await failure(self._host.session, probe, self._address)
            failures = 0 if why is None else failures + 1
            if failures >= probe.failures:
                return f"liveness probe failed {failures} times: {why}"

    @property
    def _log(self) -> Path:
        return self._host.state.logs / f"{name_of(self.pod)}.log"

    @property
    def _termination_log(self) -> Path:
        return volumes.folder_of(self.pod, self._host.state) / "termination-log"

    def _note_end(self, code: int, reason: str, written: logfile.Follower) -> None:
        by_itself = reason in ("Error", "Completed")
        message = self._termination_message(code, written) if by_itself else reason
        kind = reason if reason in ("Error", "Completed", "Terminated") else "Unhealthy"
        self._set(self._container.terminated(code, kind, message, self._host.clock()))
        log.info("ended", extra=fields(pod=name_of(self.pod), code=code, reason=reason))

    async def _pause(self) -> None:
        """Wait for the back-off, or until the pod must end."""
        if self.is_ending:
            return
        delay_s = self._host.back_off.delay_s(self._crashes)
        if "terminated" in self._container.state:
            last = self._container.state["terminated"]
            ended = f"ended with {last['exitCode']}: {last['message']}".removesuffix(": ")
            message = f"restarts in {delay_s:g} s; {ended}"
            self._set(self._container.waiting("CrashLoopBackOff", message))
            self._container = replace(self._container, restarts=self._container.restarts + 1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._ending.wait()

    def _termination_message(self, code: int, written: logfile.Follower) -> str:
        """What the container left in its termination log; of one that failed and left nothing, the
        last lines of the output since its start (the policy FallbackToLogsOnError).
        """
        left = self._termination_log.read_bytes() if self._termination_log.exists() else b""
        if not left and code:
            left = b"".join(written.read().splitlines(keepends=True)[-_MESSAGE_LINES:])
        return left[-_MESSAGE_BYTES:].decode(errors="replace").strip()

    def _set(self, container: ContainerState) -> None:
        """Store the pod's status; an unchanged status is not written."""
        self._container = container
        live = self._host.store.get(ref(self.pod))
        if live is None or live["metadata"]["uid"] != self.pod["metadata"]["uid"]:
            return
        status = placed(live, container, self._address, self._host.clock())
        self._host.store.update({**live, "status": status})


async def _drain(copying: asyncio.Task[None]) -> None:
    """Wait up to _DRAIN_S for the rest of the output.

    A process that has left the group may keep the pipe open; it is not waited for.
    """
    await asyncio.wait({copying}, timeout=_DRAIN_S)
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)
