"""Defers Ctrl-C to the end of a step, because an interrupted step leaves pages without an owner.

The first Ctrl-C is stored, and `check` raises it; a second one is raised immediately.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """Context manager that defers Ctrl-C.

    It has no effect outside the main thread, or if SIGINT has another handler than Python's: then
    the application handles Ctrl-C itself.
    """

    def __init__(self) -> None:
        self._asked = False
        self._installed = False

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            signal.default_int_handler(number, frame)
        self._asked = True
