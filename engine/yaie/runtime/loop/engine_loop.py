"""The engine loop: commands in, steps through the runner, events out.

Up to `runner.depth` steps stay in flight beyond the one being built, so that the device never waits
for Python: with depth 1, the forward pass of step N+1 is launched before the result of step N is
collected. The token masks of a step are filled while its forward pass runs, after every earlier
token is committed. If a step raises, only the request that caused it fails; the scheduler finds
that request. Time comes from the injected clock, in seconds.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from threading import Event as StopEvent
from typing import Generic, Protocol, TypeVar

import msgspec

from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Command, Event
from yaie.core.outputs import BROKEN, CLOSING, step_failed
from yaie.core.scheduler.scheduler import Scheduler
from yaie.runtime import phases
from yaie.runtime.grammar.pending import GrammarBackend, TokenMasks
from yaie.runtime.loop.command_handler import CommandHandler
from yaie.runtime.loop.prefix_publisher import PrefixPublisher
from yaie.runtime.loop.step_budget import StepBudget
from yaie.runtime.loop.step_cost import StepShape
from yaie_api.logs import fields

__all__ = ["EngineLoop", "FatalRunnerError", "GrammarBackend", "Port", "Runner", "TokenMasks"]

IDLE_WAIT_S = 0.5
"""An idle loop wakes up this often to publish its statistics, which show that it is alive."""
QUIET_S = 0.05
"""After this long without commands, an idle loop does a piece of the warm-up that was put off."""
COMPILING_WAIT_S = 0.002
"""If nothing else runs, a compiled grammar waits at most this long."""
STATS_INTERVAL_S = 0.25
SPARE_S = 0.001
"""The next step is launched at least this long before the running one is expected to end."""
FADE = 0.98
"""The maximum of recent launch times decays by this factor with each step."""

HandleT = TypeVar("HandleT")
log = logging.getLogger(__name__)


class FatalRunnerError(Exception):
    """The device is lost: no later step can succeed, and the process must be restarted."""


class Runner(Protocol[HandleT]):
    """Computes batches in the order of their launches, like one CUDA stream."""

    @property
    def depth(self) -> int:
        """Steps that may be in flight beyond the one being built: GPU 1, CPU 0."""

    def warm_up_next(self) -> bool:
        """Do a piece of the warm-up that was put off, on an idle device, in tens of milliseconds.
        False: none is left.
        """

    def launch(self, batch: Batch) -> HandleT:
        """Enqueue the forward pass."""

    def sample(self, handle: HandleT, masks: TokenMasks | None = None) -> None:
        """Enqueue sampling; `masks` forbids tokens in some rows."""

    def is_done(self, handle: HandleT) -> bool:
        """Whether the device has computed the step, so that `collect` would not block."""

    def collect(self, handle: HandleT) -> StepResult:
        """Block until the result is there."""


class Port(Protocol):
    """The loop's inbox and outbox."""

    def drain(self, *, wait_s: float) -> list[Command]:
        """Commands received so far; with `wait_s` > 0 wait that long for the first."""

    def publish(self, events: list[Event]) -> None:
        """Send events, in order."""


class _InFlightStep(Generic[HandleT]):
    """A launched step. `launched_at` in seconds of the loop's clock."""

    __slots__ = ("batch", "handle", "launched_at", "load", "sampled")

    def __init__(self, batch: Batch, load: StepShape, handle: HandleT, launched_at: float) -> None:
        self.batch = batch
        self.load = load
        self.handle = handle
        self.launched_at = launched_at
        self.sampled = False


class EngineLoop(Generic[HandleT]):
    """Drives one scheduler and one runner. Not thread-safe: one thread calls `step` or `run`.

    `epoch`: the number of this start for those that watch its prefix cache.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner[HandleT],
        port: Port,
        *,
        budget: StepBudget,
        grammars: GrammarBackend | None = None,
        clock: Callable[[], float] = time.monotonic,
        epoch: int = 0,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._port = port
        self._budget = budget
        self._grammars = grammars
        self._prefixes = PrefixPublisher(scheduler, epoch)
        self._commands = CommandHandler(scheduler, grammars, self._prefixes.watch)
        self._clock = clock
        self._in_flight: deque[_InFlightStep[HandleT]] = deque()
        self._events: list[Event] = []
        self._step_budget = 0
        self._step_seconds = 0.0
        self._launch_s = 0.0
        self._compiled = phases.n_compiled()
        self._warming_up = True
        self._collected_at = self._progress_at = clock()
        self._stats_at = float("-inf")
        self._was_idle = True
        self._proved = True

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to run, nothing in flight, and nothing being compiled."""
        return self._scheduler.is_idle and not self._commands.n_compiling

    def last_step_age_s(self) -> float:
        """Seconds since the loop made progress while it has steps to run; 0 when it has none."""
        return 0.0 if self._scheduler.is_idle else self._clock() - self._progress_at

    def expected_step_s(self) -> float | None:
        """Expected seconds of the steps in flight; None: nothing was measured."""
        return self._budget.expected_s()

    def step(self) -> bool:
        """Advance the pipeline by one step. False: there was nothing to do."""
        n_commands = self._drain()
        batch = self._schedule()
        newest = self._launch(batch)
        committed = self._commit_oldest(keep=self._runner.depth if newest else 0)
        self._sample(newest)
        self._publish()
        return n_commands > 0 or batch is not None or committed or self._commands.n_compiling > 0

    def run(self, stop: StopEvent) -> None:
        """Run steps until `stop` is set, then end every live request.

        If an error ends the loop, only requests that run are answered, because one of them may be
        the cause. Requests that only wait are not answered, so that the process that restarts the
        engine can send them again.

        Raises:
            FatalRunnerError: the device is lost.

        """
        try:
            while not stop.is_set():
                self.step()
            self._events.extend(self._commands.close())
            self._events.extend(self._scheduler.fail_all(CLOSING))
        except BaseException:
            self._events.extend(self._scheduler.fail_running(BROKEN))
            raise
        finally:
            self._flush()

    def close(self) -> None:
        """End the threads that compile grammars. The loop must not be stepped afterwards."""
        if self._grammars is not None:
            self._grammars.close()

    # -- parts of a step --------------------------------------------------------------------

    def _drain(self) -> int:
        compiling, idle = self._commands.n_compiling, self._scheduler.is_idle
        if idle:
            commands = self._port.drain(wait_s=self._idle_wait_s())
            if not commands and not compiling:
                self._warm_up_next()
        else:
            commands = self._late_arrivals()
        now = self._clock()
        if idle:
            self._progress_at = now
            if not compiling:
                self._prove(commands)
        self._events.extend(self._commands.obey(commands, now))
        return len(commands)

    def _schedule(self) -> Batch | None:
        scheduler, now = self._scheduler, self._clock()
        if scheduler.has_prefill:
            decodes, position = scheduler.n_decoding, scheduler.prefill_position
            # If no request waits, prompts are computed fast enough.
            arriving = scheduler.arriving_per_s(now) if scheduler.n_waiting else 0.0
            self._step_budget = self._budget.tokens(decodes, position, arriving)
        return scheduler.schedule(now, self._step_budget)

    def _launch(self, batch: Batch | None) -> _InFlightStep[HandleT] | None:
        if batch is None:
            return None
        launched_at, load = self._clock(), StepShape.of(batch)
        self._budget.launched(load)
        try:
            handle = self._runner.launch(batch)
        except Exception as error:  # noqa: BLE001 - `_contain` handles every error of a step
            self._contain(batch, error)
            return None
        self._launch_s = max(FADE * self._launch_s, self._clock() - launched_at)
        flight = _InFlightStep(batch, load, handle, launched_at)
        self._in_flight.append(flight)
        return flight

    def _commit_oldest(self, *, keep: int) -> bool:
        """Commit the oldest step when more than `keep` are in flight."""
        if len(self._in_flight) <= keep:
            return False
        flight = self._in_flight[0]
        self._sample(flight)  # with depth 0 the oldest is the newest
        if self._in_flight and self._in_flight[0] is flight:
            self._in_flight.popleft()
            self._collect(flight)
        return True

    def _sample(self, flight: _InFlightStep[HandleT] | None) -> None:
        if flight is None or flight.sampled:
            return
        flight.sampled = True
        try:
            self._runner.sample(flight.handle, self._masks(flight))
        except Exception as error:  # noqa: BLE001 - `_contain` handles every error of a step
            self._in_flight.remove(flight)
            self._contain(flight.batch, error)

    def _publish(self) -> None:
        """Publish the events of this step, and statistics four times a second and when the loop
        becomes idle.
        """
        now, idle = self._clock(), self.is_idle
        since_s = now - self._stats_at
        if since_s >= (IDLE_WAIT_S if idle else STATS_INTERVAL_S) or (idle and not self._was_idle):
            self._stats_at = now
            stats = self._scheduler.stats()
            self._events.append(
                msgspec.structs.replace(
                    stats,
                    waiting=stats.waiting + self._commands.n_compiling,
                    step_seconds=self._step_seconds,
                    step_budget_tokens=self._step_budget,
                    steps_past_target=self._budget.steps_past_target,
                    late_compilations=phases.n_compiled() - self._compiled,
                )
            )
        self._was_idle = idle
        self._events.extend(self._prefixes.updates(now))
        self._flush()

    # -- inside -----------------------------------------------------------------------------

    def _idle_wait_s(self) -> float:
        if self._commands.n_compiling:
            return COMPILING_WAIT_S
        wait_s = QUIET_S if self._warming_up else IDLE_WAIT_S
        return self._prefixes.wait_s(wait_s)

    def _warm_up_next(self) -> None:
        """Do a piece of the warm-up while no request waits; kernels that it compiles do not count
        as late. If it fails, the engine serves with what it has.
        """
        if not self._warming_up:
            return
        compiled = phases.n_compiled()
        try:
            self._warming_up = self._runner.warm_up_next()
        except FatalRunnerError:
            raise
        except Exception as error:
            self._warming_up = False
            log.warning("warm-up is left unfinished", exc_info=error)
        self._compiled += phases.n_compiled() - compiled

    def _late_arrivals(self) -> list[Command]:
        """Receive commands, also those that arrive while the running step leaves time: a request
        that joins the next step, instead of the one after, is answered one step sooner.
        """
        commands = self._port.drain(wait_s=0.0)
        until_s = self._launch_by_s()
        while until_s - self._clock() >= SPARE_S:
            if self._runner.is_done(self._in_flight[0].handle):  # sooner than expected
                break
            commands += self._port.drain(wait_s=SPARE_S)
        return commands

    def _launch_by_s(self) -> float:
        """Time by which the next step must be launched so that the device does not wait for it."""
        if not self._in_flight or not self._budget.hurries:
            return -math.inf
        running = self._in_flight[0]
        expected_s = self._budget.step_s(running.load)
        if expected_s is None:
            return -math.inf
        ends_at = max(running.launched_at, self._collected_at) + expected_s
        return ends_at - self._launch_s - SPARE_S

    def _masks(self, flight: _InFlightStep[HandleT]) -> TokenMasks | None:
        """Fill the token masks of a step. Its matchers must have consumed every earlier token."""
        rows = self._scheduler.matchers(flight.batch)
        if not rows or self._grammars is None:
            return None
        if self._in_flight[0] is not flight:
            while self._in_flight[0] is not flight:
                self._commit_oldest(keep=0)
            rows = self._scheduler.matchers(flight.batch)
        return self._grammars.masks(rows) if rows else None

    def _prove(self, commands: list[Command]) -> None:
        """Once per idle period, prove that no page or slot was lost."""
        if not commands and not self._proved:
            self._scheduler.check()
        self._proved = not commands

    def _collect(self, flight: _InFlightStep[HandleT]) -> None:
        try:
            result = self._runner.collect(flight.handle)
        except Exception as error:  # noqa: BLE001 - `_contain` handles every error of a step
            self._contain(flight.batch, error)
            return
        now = self._clock()
        # Steps overlap: a step starts at its launch or at the end of the previous one, if later.
        seconds = now - max(flight.launched_at, self._collected_at)
        self._collected_at = self._progress_at = now
        self._step_seconds += seconds
        self._budget.observe(flight.load, seconds)
        self._events.extend(self._scheduler.commit(result, now))

    def _contain(self, batch: Batch, error: Exception) -> None:
        """Handle a failed step so that only the request that caused the error fails. Raises the
        error again if no later step can succeed.
        """
        self._collected_at = self._progress_at = self._clock()
        fatal, out_of_memory = isinstance(error, FatalRunnerError), _is_out_of_memory(error)
        if fatal:  # no request is tried again
            self._events.extend(self._scheduler.fail_running(BROKEN))
        if out_of_memory:
            self._budget.exhausted(batch.n_tokens)
        ends = self._scheduler.fail_step(batch.step_id, step_failed(out_of_memory=out_of_memory))
        self._events.extend(ends)
        if fatal:
            raise error
        log.error(
            "step failed",
            exc_info=error,
            extra=fields(
                step_id=batch.step_id,
                tokens=batch.n_tokens,
                sequences=len(batch.rows),
                request_ids=sorted({end.request_id for end in ends}),
            ),
        )

    def _flush(self) -> None:
        events, self._events = self._events, []
        if events:
            self._port.publish(events)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether host or device memory ran out. Device libraries have their own exception types, and
    torch on a CPU raises a RuntimeError with this text.
    """
    named = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
    return named or "can't allocate memory" in str(error)
