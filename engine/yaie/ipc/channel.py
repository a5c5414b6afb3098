"""Messages between the HTTP process and the engine process: ZeroMQ PAIR sockets over a unix socket.

Messages are msgpack (msgspec), never pickle. The HTTP process binds its socket in a folder that
only its user can enter. Each start of the engine process gets a new address, so a new engine never
reads messages of a dead one. Commands and events are sent in batches. Heartbeats have their own
socket, because their own thread sends them.

One engine process may serve several HTTP processes, each at its own address: a request's events go
to the process that sent the request, all other messages to all processes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import zmq

from yaie.config import ModelInfo
from yaie.core.messages import Command, Event
from yaie.ipc.owners import Owners

MAX_MESSAGE_BYTES: Final = 256 * 1024 * 1024
HIGH_WATER_MARK: Final = 100_000
POLL_S: Final = 0.5
RETRY_S: Final = 0.05
EXIT_HANGS: Final = 86
"""Exit status of an engine process that hung in a step."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """The engine process is in a stage of its start. `detail`: how far it is, if that is known."""

    stage: str
    detail: str = ""


class Located(msgspec.Struct, frozen=True, tag="located"):
    """The engine process has found the model's folder and that of its tokenizer. The HTTP process
    reads the tokenizer while the weights are loaded.
    """

    path: str
    tokenizer_path: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded, and the engine accepts requests."""

    info: ModelInfo


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The start failed and the process ends. The message is for the user."""

    message: str


class Events(msgspec.Struct, frozen=True, tag="events"):
    """The events of one step of the engine loop."""

    events: list[Event]


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A heartbeat, sent independently of the engine loop.

    `step_age_s`: time since the start of the running step, without declared phases such as
    compilation. `hangs`: the step takes too long, and the process is about to end.
    """

    step_age_s: float
    phase: str
    hangs: bool


FromEngine = Loading | Located | Ready | Failed | Events | Beat

_READABLE: Final = int(zmq.POLLIN)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_from_engine: Final = msgspec.msgpack.Decoder(FromEngine).decode
_decode_commands: Final = msgspec.msgpack.Decoder(list[Command]).decode


class EnginePort:
    """The engine's side of the channel. Its methods block; one thread may use it.

    `address`: the address of the HTTP process, or those of several, separated by commas.
    """

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._sockets = [_connected(self._context, zmq.PAIR, one) for one in address.split(",")]
        self._poller = zmq.Poller()
        for socket in self._sockets:
            self._poller.register(socket, zmq.POLLIN)
        self._owners = Owners(len(self._sockets))

    def send(self, message: FromEngine) -> None:
        """Send a message to every HTTP process."""
        encoded = _encode(message)
        for socket in self._sockets:
            socket.send(encoded)

    def drain(self, *, wait_s: float) -> list[Command]:
        """Return all commands that have arrived; waits up to `wait_s` for the first one."""
        commands: list[Command] = []
        if wait_s > 0:
            self._poller.poll(int(min(wait_s, POLL_S) * 1000) or 1)
        for place, socket in enumerate(self._sockets):
            while _is_readable(socket):
                arrived = _decode_commands(socket.recv(zmq.NOBLOCK))
                self._owners.note(arrived, place)
                commands += arrived
        return commands

    def publish(self, events: Sequence[Event]) -> None:
        """Send each HTTP process the events of its requests."""
        for socket, some in zip(self._sockets, self._owners.split(events), strict=True):
            if some:
                socket.send(_encode(Events(some)))

    def close(self) -> None:
        for socket in self._sockets:
            socket.close(linger=1000)
        self._context.term()


class BeatPort:
    """The engine's side of the heartbeats, for the thread that sends them; see `EnginePort`."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._sockets = [
            _connected(self._context, zmq.PUSH, beat_address(one)) for one in address.split(",")
        ]

    def send(self, beat: Beat) -> None:
        """Send a heartbeat; it is dropped if the HTTP process does not read."""
        encoded = _encode(beat)
        for socket in self._sockets:
            with contextlib.suppress(zmq.Again):
                socket.send(encoded, zmq.NOBLOCK)

    def close(self) -> None:
        """Send waiting heartbeats (for up to 0.5 s), then close."""
        if self._context.closed:
            return
        for socket in self._sockets:
            socket.close(linger=500)
        self._context.term()


class EngineChannel:
    """The HTTP process's side, on the running event loop.

    Commands sent in the same iteration of the event loop share a message.
    """

    def __init__(self, address: str, on_message: Callable[[FromEngine], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.PAIR)
        self._socket.bind(address)
        self._beats = _socket(self._context, zmq.PULL)
        self._beats.bind(beat_address(address))
        self._outbox: list[Command] = []
        self._closed = False
        for socket in (self._socket, self._beats):
            self._loop.add_reader(socket.FD, self._receive, socket)

    def send(self, command: Command) -> None:
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(command)

    def close(self) -> None:
        """Deliver the messages that have arrived, then close."""
        if self._closed:
            return
        for socket in (self._beats, self._socket):
            self._receive(socket)
        self._closed = True
        for socket in (self._socket, self._beats):
            self._loop.remove_reader(socket.FD)
            socket.close(linger=0)
        self._context.term()

    def _flush(self) -> None:
        commands, self._outbox = self._outbox, []
        if self._closed:
            return
        try:
            self._socket.send(_encode(commands), zmq.NOBLOCK)
        except zmq.Again:  # the engine process has just died or is far behind: try again
            self._outbox = commands + self._outbox
            self._loop.call_later(RETRY_S, self._flush)
            return
        # zmq's file descriptor is edge-triggered, and sending may consume an edge: check again.
        self._receive(self._socket)

    def _receive(self, socket: "zmq.Socket[bytes]") -> None:
        while not self._closed and _is_readable(socket):
            self._on_message(_decode_from_engine(socket.recv(zmq.NOBLOCK)))


def beat_address(address: str) -> str:
    """The address for heartbeats of the engine process whose channel is at `address`."""
    return address + "-beat"


def addresses(base: str, count: int) -> list[str]:
    """An address for each of `count` HTTP processes."""
    return [base, *(f"{base}.{place}" for place in range(1, count))]


def _connected(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, address: str
) -> "zmq.Socket[bytes]":
    socket = _socket(context, kind)
    socket.connect(address)
    return socket


def _is_readable(socket: "zmq.Socket[bytes]") -> bool:
    """Whether a message has arrived. This check costs 1 µs; a receive that fails costs 6 µs."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _READABLE)


def _socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    return socket
