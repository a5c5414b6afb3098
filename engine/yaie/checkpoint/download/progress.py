"""How far a download is: bytes, speed and the time that is left, and who is told.

The download runs in a thread; the caller's thread tells a `Report` about it twice a second, so a
report may use what belongs to that thread.
"""

import logging
import math
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from typing import Final, TextIO, TypeVar

from yaie_api.download.amounts import how_far
from yaie_api.logs import fields

T = TypeVar("T")
log = logging.getLogger(__name__)

TICK_S: Final = 0.5
LINE_S: Final = 5.0
WINDOW_S: Final = 10.0
"""The speed is the average of so many seconds."""


@dataclass(frozen=True)
class Downloaded:
    """How far the download of a model is. `total`: 0 if the hub has not said it."""

    model: str
    done: int
    total: int
    bytes_per_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds that are left at this speed; None if that cannot be said."""
        if not self.total or self.bytes_per_s <= 0:
            return None
        return max(self.total - self.done, 0) / self.bytes_per_s

    def __str__(self) -> str:
        """`1.20 GB of 3.40 GB (35 %), 56.1 MB/s, 40 s left`."""
        return how_far(self.done, self.total, self.bytes_per_s, self.left_s)


Report = Callable[[Downloaded], None]


class Meter:
    """Counts the bytes of a download; its methods may be called by any thread."""

    def __init__(
        self, model: str, total: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._model = model
        self._total = total
        self._clock = clock
        self._lock = threading.Lock()
        self._done = self._received = 0
        self._samples = deque([(clock(), 0)])

    def stored(self, n_bytes: int) -> None:
        """Count bytes that are on the disk now, those of an earlier try included."""
        with self._lock:
            self._done += n_bytes

    def received(self, n_bytes: int) -> None:
        """Count bytes that have come over the network; the speed is theirs, if any are counted."""
        with self._lock:
            self._received += n_bytes

    def state(self) -> Downloaded:
        with self._lock:
            now, came = self._clock(), self._received or self._done
            self._samples.append((now, came))
            while now - self._samples[0][0] > WINDOW_S and len(self._samples) > 2:
                self._samples.popleft()
            began, before = self._samples[0]
            speed = (came - before) / (now - began) if now > began else 0.0
            done = min(self._done, self._total) if self._total else self._done
            return Downloaded(self._model, done, self._total, speed)


def watched(fetch: Callable[[], T], meter: Meter, report: Report) -> T:
    """Run `fetch` in a thread until it returns, and tell `report` how far it is.

    An exception in the thread is raised here.
    """
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(fetch())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            found.set_exception(error)

    threading.Thread(target=work, name="download", daemon=True).start()
    while True:
        try:
            return found.result(TICK_S)
        except NotYetError:
            if found.done():
                raise
            report(meter.state())


class Teller:
    """Tells people on a stream: one line that is rewritten on a terminal, else a line every few
    seconds. A download that ends within a tick is not told.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._clock = clock
        self._told_s = -math.inf

    def __call__(self, state: Downloaded) -> None:
        """Tell how far the download is."""
        if self._is_terminal:
            # The cursor returns to the start: a log line that comes now replaces the text.
            self._stream.write(f"\r{_fitting(f'{state.model}: {state}')}\033[K\r")
            self._stream.flush()
        elif self._clock() - self._told_s >= LINE_S:
            self._told_s = self._clock()
            self._tell(state)

    def end(self) -> None:
        """Remove the line from a terminal."""
        if self._is_terminal:
            self._stream.write("\033[K")
            self._stream.flush()

    def _tell(self, state: Downloaded) -> None:
        left_s = state.left_s
        log.info(
            "downloading",
            extra=fields(
                model=state.model,
                bytes=state.done,
                total=state.total,
                bytes_per_s=round(state.bytes_per_s),
                left_s=None if left_s is None else round(left_s),
            ),
        )


class LineTeller(Teller):
    """Tells people who wait for a download alone: plain lines where there is no terminal."""

    def _tell(self, state: Downloaded) -> None:
        self._stream.write(f"{state.model}: {state}\n")
        self._stream.flush()


def _fitting(text: str) -> str:
    return text[: max(shutil.get_terminal_size().columns - 1, 20)]
