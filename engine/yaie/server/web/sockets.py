"""Listening sockets."""

import socket
from typing import Final

from yaie_api.errors import UnavailableError

BACKLOG: Final = 2048


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening address, checked before anything heavy starts. `shared`: others may `join` it.

    Raises:
        UnavailableError: the address is taken or not ours.

    """
    listener = _socket_for(host)
    try:
        listener.bind((host, port))
        # Not before it is bound: two servers that are started by mistake would both get the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return listener


def join(shared: socket.socket) -> socket.socket:
    """One more listener on an address that is shared: the kernel spreads connections over them."""
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
    """Where clients reach the listener."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
