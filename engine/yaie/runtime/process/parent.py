"""Ends a process with the one that started it, however that one ended.

The parent holds the other end of our standard input, which the kernel closes with it.
"""

import logging
import os
import signal
import sys
import threading
from typing import Final

log = logging.getLogger(__name__)

EXIT_GRACE_S: Final = 3.0
"""How long the running step may take once the process has to end."""


def end_with_parent(stop: threading.Event) -> None:
    """Set `stop` when standard input ends; after a grace period end the process from a thread.

    Signals are the parent's to answer: Ctrl-C, `timeout` and whoever stops a pod signal the whole
    process group, and a parent that drains still needs this process.
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
