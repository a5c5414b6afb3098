"""Ports for servers that a test starts.

The kernel gives outgoing connections ports of its own range, so a port that it gave to a probe and
that was closed again can be taken before the server binds it. These lie below that range, and each
process counts through a part of its own.
"""

import os
import socket
from itertools import count

LOWEST, FOR_ONE_PROCESS, PROCESSES = 20_000, 100, 100
"""Up to 30,000, where NodePorts begin; the kernel's own range begins at 32,768."""

_candidates = count(os.getpid() % PROCESSES * FOR_ONE_PROCESS)


def free_port() -> int:
    """A loopback port that nobody listens on, another one each time."""
    while True:
        port = LOWEST + next(_candidates) % (PROCESSES * FOR_ONE_PROCESS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
