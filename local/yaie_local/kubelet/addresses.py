"""One loopback address 127.1.x.y per pod, so that every pod can use its template's port.

Several `yaie up` processes share the loopback network, so an address counts as free only if its
ports can be bound now. Linux accepts all of 127.0.0.0/8 without configuration.
"""

import errno
import hashlib
import socket
from collections.abc import Iterator, Sequence

from yaie_operator.cluster import Object


class AddressPool:
    """Owner of the addresses in use. `seed` selects the block x, so that several pools differ."""

    def __init__(self, seed: str) -> None:
        self._block = hashlib.sha256(seed.encode()).digest()[0]
        self._next = 0
        self._held: dict[str, str] = {}

    def take(self, holder: str, ports: Sequence[int]) -> str | None:
        """Take an address on which all ports are free; None if there is none."""
        for address in self._candidates():
            if address not in self._held.values() and all(_is_free(address, p) for p in ports):
                self._held[holder] = address
                return address
        return None

    def give_back(self, holder: str) -> None:
        self._held.pop(holder, None)

    def _candidates(self) -> Iterator[str]:
        """The block's 254 addresses, starting after the last one taken."""
        for _ in range(254):
            self._next = self._next % 254 + 1
            yield f"127.1.{self._block}.{self._next}"


def ports_of(pod: Object) -> list[int]:
    """The TCP ports that a pod's container declares."""
    declared = pod["spec"]["containers"][0].get("ports") or ()
    return [int(port["containerPort"]) for port in declared]


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True
