"""Reports the age of the running step, and ends the process if the step hangs.

A thread beside the engine loop sends a beat twice a second, whatever the loop does, so that the
HTTP process can tell a long step from a silent process. When a step exceeds its limit, the thread
logs the stacks of all threads and ends the process: a hanging device or thread cannot be
interrupted, and the HTTP process starts the engine again. If even this thread cannot run (another
one holds the interpreter's lock), `faulthandler` writes the stacks and the HTTP process ends the
process.
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
"""A step may take this many times what earlier steps predict."""
FIRST_LIMIT_S: Final = 300.0
"""Limit before any step was measured: the first step loads libraries and starts devices."""
PHASE_LIMIT_S: Final = 600.0
SILENT_S: Final = 8.0
"""If this thread has not run for so many seconds, `faulthandler` writes the stacks."""


def limit_s(expected_s: float | None) -> float:
    """Seconds that the running step may take. `expected_s` None: nothing was measured yet."""
    return FIRST_LIMIT_S if expected_s is None else max(LIMIT_S, STRETCH * expected_s)


class StepTimer:
    """Age of the running step in seconds, without declared phases. The caller provides times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.phase_s = 0.0

    def observe(self, age_s: float, passed_s: float, phase: str) -> None:
        """Record that the running step, the same as at the last call or a newer one, is `age_s`
        seconds old. `passed_s`: seconds since the last call. `phase`: the declared phase, or empty.
        """
        counted = 0.0 if phase else passed_s
        self.seconds = min(age_s, self.seconds + counted)
        self.phase_s = self.phase_s + passed_s if phase else 0.0

    def hangs(self, limit: float) -> bool:
        """Whether the step exceeds `limit` seconds, or its phase exceeds `PHASE_LIMIT_S`."""
        return self.seconds > limit or self.phase_s > PHASE_LIMIT_S


class Watchdog:
    """Sends beats from its own thread, from `start` on.

    Args:
        address: where the HTTP process listens for beats.
        age_s: returns the seconds since the loop made progress; 0 if it has no steps to run.
        expected_s: returns the seconds that earlier steps predict for the running one; None:
            nothing was measured.
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
        """Start to send beats, until `stop` or the end of the process."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; returns when it has ended."""
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
        # Computed only when it can matter: the prediction may have to rebuild a cost curve.
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
            port.close()  # sends queued messages
            self._end(EXIT_HANGS)


def stacks() -> str:
    """The stack of each thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - its documented use is this
    )
