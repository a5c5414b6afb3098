"""Keeps Python's full garbage collections out of a busy event loop.

A full collection visits every object of the process in one go. Some 190 objects belong to a waiting
request, so with 3,000 of them each collection stops all streams for a tenth of a second and more,
and one follows whenever a quarter more objects have come. Most garbage needs none: reference
counts and the young generations find it.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 1.0
LONGEST_S: Final = 60.0
"""A loop that is never idle stops for a full collection this often: cycles may not pile up."""
DUE: Final = gc.get_threshold()[2]
"""Collections of the middle generation, since the last full one, after which Python does one."""
_NEVER: Final = 1 << 30


def freeze() -> None:
    """Never look again at what is there now, which is what imports and loading have left."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def look_rarely() -> None:
    """Look at new objects for garbage after 10,000 of them and not 700, for a process that parses
    much JSON, most of which is kept or freed by reference counts.
    """
    gc.set_threshold(10_000, 20, DUE)


def is_due(waiting: int, since_s: float, *, idle: bool) -> bool:
    """Whether to do a full collection now. `waiting`: collections of the middle generation since
    the last one, `since_s` seconds ago.
    """
    return waiting >= DUE and (idle or since_s >= LONGEST_S)


async def collect_when_idle(
    is_idle: Callable[[], bool], *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Take full collections over from Python until cancelled."""
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    last_s = clock()
    try:
        while True:
            await asyncio.sleep(PERIOD_S)
            if is_due(gc.get_count()[2], clock() - last_s, idle=is_idle()):
                gc.collect()
                last_s = clock()
    finally:
        gc.set_threshold(young, middle, full)
