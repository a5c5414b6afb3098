"""Ends this process when its parent process ends, for whatever reason.

The parent holds the other end of this process's standard input; the kernel closes it when the
parent ends.
"""

import logging
import os
import signal
import sys
import threading
from typing import Final

log = logging.getLogger(__name__)

EXIT_GRACE_S: Final = 3.0
"""Seconds that the running step may still take after the parent has ended."""


def end_with_parent(stop: threading.Event) -> None:
    """Set `stop` when standard input ends; after a grace period end the process from a thread.

    Signals are left to the parent: Ctrl-C, `timeout` and container runtimes may signal the whole
    process group, and a parent that drains its requests still needs this process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        log.info("parent is gone")
        stop.set()
        threading.Event().wait(EXIT_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
