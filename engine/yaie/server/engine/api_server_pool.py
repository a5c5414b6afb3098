"""The other HTTP processes of a server, controlled by the first one.

    clients --- first: HTTP and supervisor --- engine process
        |         | control sockets               |
        +---- others: HTTP ----------------------+

All processes listen on one port, and the kernel spreads connections over them. The first one starts
the engine process and tells the others where to listen for it, when it has died, and when to drain.
The others are forks of the first, made before any thread or event loop exists. If one of them dies,
the whole server ends: its streams are broken anyway, and a pod that restarts is easier to reason
about than a server that repairs itself.
"""

import asyncio
import contextlib
import multiprocessing
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from typing import Final

import msgspec

from yaie.ipc.channel import addresses
from yaie.server.engine.client import EngineState

LEAVE_GRACE_S: Final = 5.0
"""How long a process may take to end after its deadline; then it is killed."""


class Listen(msgspec.Struct, frozen=True, tag="listen"):
    """Listen at `address`, where the next engine process will connect."""

    address: str


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    """Detach from the engine process: it has ended, or could not start."""

    state: EngineState


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no new requests; end when the running ones have ended."""


Order = Listen | Detach | Drain
_encode: Final = msgspec.json.Encoder().encode
decode_order: Final = msgspec.json.Decoder(Order).decode


@dataclass(frozen=True)
class Member:
    """One other process. `control`: our end of its socket; closing it ends the process at once."""

    process: ForkProcess
    control: socket.socket


class ApiServerPool:
    """All other HTTP processes; empty if the server has only one."""

    def __init__(self, members: Sequence[Member] = ()) -> None:
        self._members = members
        self._is_leaving = False

    def listen(self, address: str) -> str:
        """Tell each process its address for the engine. Return all addresses, `address` first."""
        found = addresses(address, len(self._members) + 1)
        for member, one in zip(self._members, found[1:], strict=True):
            _tell(member, Listen(one))
        return ",".join(found)

    def detach(self, state: EngineState) -> None:
        for member in self._members:
            _tell(member, Detach(state))

    def drain(self) -> None:
        self._is_leaving = True
        for member in self._members:
            _tell(member, Drain())

    def end(self) -> None:
        """End all of them at once."""
        self._is_leaving = True
        for member in self._members:
            member.control.close()

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call `on_death` when a process ends without being told to."""
        loop = asyncio.get_running_loop()
        for member in self._members:
            loop.add_reader(member.process.sentinel, self._left, member, on_death)

    async def left(self, timeout_s: float) -> bool:
        """Wait until all have ended, and kill the late ones. Return whether all exited with 0."""
        deadline_s = time.monotonic() + timeout_s + LEAVE_GRACE_S
        while any(one.process.is_alive() for one in self._members):
            if time.monotonic() > deadline_s:
                for member in self._members:
                    member.process.kill()
            await asyncio.sleep(0.02)
        return all(one.process.exitcode == 0 for one in self._members)

    def _left(self, member: Member, on_death: Callable[[], None]) -> None:
        asyncio.get_running_loop().remove_reader(member.process.sentinel)
        if not self._is_leaving:
            on_death()


def start(work: Sequence[Callable[[socket.socket], int]]) -> ApiServerPool:
    """Start a process for each function, which takes a control socket and returns an exit status.

    Call it before this process has threads or an event loop.
    """
    pairs = [socket.socketpair() for _ in work]
    context = multiprocessing.get_context("fork")
    members = []
    for place, run in enumerate(work):
        process = context.Process(
            target=_run, args=(run, pairs, place), name=f"yaie-http-{place + 1}"
        )
        process.start()
        members.append(Member(process, pairs[place][0]))
    for _, theirs in pairs:
        theirs.close()
    return ApiServerPool(members)


def _run(
    run: Callable[[socket.socket], int],
    pairs: Sequence[tuple[socket.socket, socket.socket]],
    place: int,
) -> None:
    """Run the new process. It closes its copies of the others' sockets, which would stay open."""
    for other, (ours, theirs) in enumerate(pairs):
        ours.close()
        if other != place:
            theirs.close()
    raise SystemExit(run(pairs[place][1]))


def _tell(member: Member, order: Order) -> None:
    with contextlib.suppress(OSError):  # it has just ended; `watch` reports that
        member.control.sendall(_encode(order) + b"\n")
