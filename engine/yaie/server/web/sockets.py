"""Listening sockets."""

import errno
import socket
from typing import Final

from yaie_api.errors import UnavailableError

BACKLOG: Final = 2048


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Listen on an address, before anything slow starts. `shared`: other processes may `join` it.

    Raises:
        UnavailableError: the address is in use, or not one of this machine.

    """
    listener = _socket_for(host)
    try:
        listener.bind((host, port))
        # Set it after bind: otherwise two servers, started by mistake, would both get the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = " Another --port may be free." if error.errno == errno.EADDRINUSE else ""
        reason = f"Cannot listen on {host}:{port}: {error.strerror}.{hint}"
        raise UnavailableError(reason) from error
    return listener


def join(shared: socket.socket) -> socket.socket:
    """Open another listener on a shared address: the kernel spreads connections over them."""
    host, port = shared.getsockname()[:2]
    listener = _socket_for(host)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    return listener


def _socket_for(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL at which clients reach the listener."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
