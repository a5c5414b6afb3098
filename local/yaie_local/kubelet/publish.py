"""Publishes the router's Service on a port of this machine, without a forwarding process.

The listening socket belongs to `yaie up`. The router's process inherits it and accepts connections
on it, in addition to its pod's address, so no data passes through `yaie up`. Clients that connect
while a router is replaced wait in the backlog. If there is no router at all, `Doorman` answers 503.
"""

import asyncio
import errno
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from yaie_api.errors import UnavailableError
from yaie_local.objects import matches
from yaie_local.state import StateError
from yaie_operator.cluster import Object

LOCALHOST: Final = "127.0.0.1"
_ANY: Final = {"0.0.0.0": LOCALHOST, "::": "::1"}  # noqa: S104 - a comparison
_BACKLOG: Final = 1024
_HEAD_TIMEOUT_S: Final = 5.0
_EMPTY: Final = UnavailableError(
    "No model is deployed; deploy one with `yaie apply -f model.yaml`."
)


@dataclass(frozen=True)
class Published:
    """A Service of a namespace and what its pods, and no others, inherit: a listening socket and
    variables, which may hold secrets.
    """

    namespace: str
    service: str
    socket: socket.socket
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Base URL of the published API on this machine."""
        bound = str(self.socket.getsockname()[0])
        host = _ANY.get(bound, bound)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def covers(self, pod: Object, service: Object | None) -> bool:
        """Whether a pod belongs to the published Service."""
        if service is None or pod["metadata"].get("namespace") != self.namespace:
            return False
        return matches(pod, service["spec"].get("selector"))


def bind(
    namespace: str,
    service: str,
    port: int,
    *,
    host: str = LOCALHOST,
    environ: Mapping[str, str] | None = None,
) -> Published:
    """Listen on a port (0: any free one) of an address. `environ`: as in `Published`.

    Raises:
        StateError: the port is in use, this user may not bind it, or the address is none of this
            machine.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise StateError(_why_not(error, host, port)) from error
    return Published(namespace, service, listening, environ or {})


def _why_not(error: OSError, host: str, port: int) -> str:
    another = "choose another with --port, or --port 0 for any free one"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; {another}"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not permitted for this user; {another}"
    return f"cannot listen on {host}: {error.strerror}; write an address of this machine as --host"


class Doorman:
    """Answers 503 on the published socket while no router process has it."""

    def __init__(self, published: Published) -> None:
        self._published = published
        self._server: asyncio.Server | None = None

    async def stand(self, *, needed: bool) -> None:
        """Start answering if `needed`, else stop."""
        if needed and self._server is None:
            own = self._published.socket.dup()
            self._server = await asyncio.start_server(_turn_away, sock=own, backlog=_BACKLOG)
        elif not needed and self._server is not None:
            self._server.close()
            self._server = None


async def _turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a 503 in OpenAI's format, after reading the request's head so the client reads it."""
    try:
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_refusal())
            await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return  # the client cannot read a response
    finally:
        writer.close()


def _refusal() -> bytes:
    body = json.dumps(_EMPTY.envelope()).encode()
    head = (
        f"HTTP/1.1 {_EMPTY.status} Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 5\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
