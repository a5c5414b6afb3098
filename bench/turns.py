"""The router with a clock in its event loop: how long its longest turn is, for `relay`.

    python bench/turns.py FILE [the router's flags]

A turn's length is the CPU time between two ticks a millisecond apart, so that what else the machine
does counts little. FILE has the longest one so far in seconds; SIGUSR1 begins anew.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from yaie_api import garbage, logs
from yaie_router.config import parse
from yaie_router.run import Signals, run

TICK_S = 0.001


class Ticks:
    """Notes the longest turn in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last_s = time.thread_time()

    def begin(self) -> None:
        self._longest_s = 0.0
        self._path.write_text("0")

    def tick(self) -> None:
        now_s = time.thread_time()
        if now_s - self._last_s > self._longest_s:
            self._longest_s = now_s - self._last_s
            self._path.write_text(f"{self._longest_s:.6f}")
        self._last_s = time.thread_time()
        self._loop.call_later(TICK_S, self.tick)


def longest_s(path: Path) -> float:
    """What the file says."""
    return float(path.read_text() or 0)


async def main(path: Path, flags: list[str]) -> None:
    """Run the router as its own command does."""
    config = parse(flags, os.environ)
    logs.configure(level=config.log_level, log_format=config.log_format)
    signals, ticks = Signals(), Ticks(path)
    signals.install()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ticks.begin)
    garbage.freeze()
    ticks.begin()
    ticks.tick()
    await run(config, signals)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2:]))
