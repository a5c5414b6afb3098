"""A thread beside the engine loop that says how long the running step has taken, and ends a hang.

It beats twice a second whatever the loop does, so that the HTTP process can tell a long step from a
process that says nothing. When a step is older than its limit, the stacks of all threads go to the
log and the process ends: a device or a thread that hangs cannot be talked to, and the HTTP process
starts the engine again. Where even this thread cannot run (something holds the interpreter's lock),
`faulthandler` writes the stacks and the HTTP process ends the process.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from yaie.ipc.channel import EXIT_HANGS, Beat, BeatPort
from yaie.runtime import phases
from yaie_api.logs import fields

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.5
LIMIT_S: Final = 10.0
STRETCH: Final = 10.0
"""A step may take this many times what earlier ones predict."""
FIRST_LIMIT_S: Final = 300.0
"""Before any step was measured, nothing is known: libraries load, devices start."""
PHASE_LIMIT_S: Final = 600.0
SILENT_S: Final = 8.0
"""Without a turn of this thread for so long, the stacks are written without it."""


def limit_s(expected_s: float | None) -> float:
    """How long the running step may take. `expected_s`: None while nothing was measured."""
    return FIRST_LIMIT_S if expected_s is None else max(LIMIT_S, STRETCH * expected_s)


class StepTimer:
    """How long the running step has taken, declared phases left out. Time is the caller's."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.phase_s = 0.0

    def observe(self, age_s: float, passed_s: float, phase: str) -> None:
        """`passed_s` after the last call the step is `age_s` old: the same one, or a newer one."""
        counted = 0.0 if phase else passed_s
        self.seconds = min(age_s, self.seconds + counted)
        self.phase_s = self.phase_s + passed_s if phase else 0.0

    def hangs(self, limit: float) -> bool:
        """Whether the step, or the phase that it is in, has taken too long."""
        return self.seconds > limit or self.phase_s > PHASE_LIMIT_S


class Watchdog:
    """Beats on a thread of its own from `start` on.

    Args:
        address: where the HTTP process listens for beats.
        age_s: seconds since the loop made progress while it has steps to run.
        expected_s: what earlier steps say that the running one takes; None: nothing was measured.
        end: ends the process; never returns.

    """

    def __init__(
        self,
        address: str,
        age_s: Callable[[], float],
        expected_s: Callable[[], float | None],
        *,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._address = address
        self._age_s = age_s
        self._expected_s = expected_s
        self._end = end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Beat until `stop`, or until the process ends."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        port, age, seen = BeatPort(self._address), StepTimer(), time.monotonic()
        try:
            while not self._stop.wait(INTERVAL_S):
                faulthandler.dump_traceback_later(SILENT_S)
                now = time.monotonic()
                age.observe(self._age_s(), now - seen, phases.current())
                seen = now
                self._judge(port, age)
        finally:
            faulthandler.cancel_dump_traceback_later()
            port.close()

    def _judge(self, port: BeatPort, age: StepTimer) -> None:
        # The prediction is asked for only when it can matter: it may cost a fit.
        limit = limit_s(self._expected_s()) if age.seconds > LIMIT_S else LIMIT_S
        hangs = age.hangs(limit)
        port.send(Beat(age.seconds, phases.current(), hangs))
        if hangs:
            log.critical(
                "step hangs",
                extra=fields(
                    seconds=round(age.seconds, 1),
                    limit_s=round(limit, 1),
                    phase=phases.current(),
                    stacks=stacks(),
                ),
            )
            port.close()  # sends what waits
            self._end(EXIT_HANGS)


def stacks() -> str:
    """Where each thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - its documented use is this
    )
