"""How an answer's bytes go from the engine's connection to the client's, without sockets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from router.fakes import DONE, event
from router.upstream.delivery.test_progress import PING
from yaie_router.discovery.objects import Endpoint
from yaie_router.health.watchdog import Wait, Watchdog
from yaie_router.upstream.delivery.relay import Flow, Relay
from yaie_router.upstream.delivery.stream import EventGate
from yaie_router.upstream.http1.connection import BrokenError, Sink


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"


@dataclass
class Client:
    """A client's connection that keeps what is written."""

    flow: Flow | None = None
    writing_paused: bool = False
    written: list[bytes] = field(default_factory=list)

    @property
    def transport(self) -> Any:
        return self

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def wind_up(self, end: Callable[[], None]) -> None:
        end()


@dataclass
class Upstream:
    """An engine's connection that does what it is told."""

    sink: Sink | None = None
    calls: list[str] = field(default_factory=list)

    def splice(self, sink: Sink) -> None:
        self.sink = sink

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


@dataclass
class Scene:
    """`chunk` and `payload` come from the engine; `clock` is the watchdog's."""

    is_chunked: bool = True
    has_events: bool = True
    client: Client = field(default_factory=Client)
    upstream: Upstream = field(default_factory=Upstream)
    clock: float = 100.0

    def __post_init__(self) -> None:
        self.wait = Wait("demo", Endpoint("pod", "127.0.0.1", 1), 30.0, 300.0)
        self.relay = Relay(
            self.client,
            cast("Any", self.upstream),
            EventGate() if self.has_events else None,
            is_chunked=self.is_chunked,
            watchdog=Watchdog(lambda: self.clock),
            wait=self.wait,
        )

    async def begin(self, first: bytes = b"") -> "asyncio.Task[None]":
        task = asyncio.create_task(self.relay.run())
        await asyncio.sleep(0)
        self.relay.payload(first)
        return task

    def chunk(self, payload: bytes) -> bytes:
        frame = framed(payload)
        self.relay.chunk(frame, frame.index(b"\r\n") + 2)
        return frame


async def test_whole_events_go_on_in_the_frame_that_they_came_in() -> None:
    scene = Scene()
    task = await scene.begin(event("a"))
    frame = scene.chunk(event("b") + event("c"))
    scene.relay.payload(DONE)
    scene.relay.ended(None)
    await task
    assert scene.client.written == [framed(event("a")), frame, framed(DONE), END]
    assert scene.client.written[1] is frame
    assert scene.client.flow is None


async def test_what_comes_with_the_end_goes_with_it_in_one_write() -> None:
    scene = Scene()
    task = await scene.begin(event("a"))
    scene.relay.payload(b"data: to")
    scene.relay.ended(None, b"rn\n\n" + event("b") + b"data: rest")
    await task
    last = framed(b"data: torn\n\n" + event("b") + b"data: rest")
    assert scene.client.written == [framed(event("a")), last + END]
    assert scene.relay.pieces == 3


async def test_what_comes_with_the_end_counts_before_a_break_is_told() -> None:
    scene = Scene()
    task = await scene.begin()
    scene.relay.ended(BrokenError("lost"), event("a") + b"data: torn")
    with pytest.raises(BrokenError):
        await task
    assert scene.client.written == [framed(event("a"))]


async def test_a_torn_event_waits_for_its_end_and_a_broken_one_is_never_seen() -> None:
    scene = Scene()
    task = await scene.begin()
    whole = event("a")
    scene.chunk(whole[:-1])
    assert scene.client.written == []
    scene.chunk(whole[-1:])
    scene.chunk(b"\n")  # a chunk's own line ends must not be taken for an event's
    scene.chunk(b"data: torn")
    assert scene.client.written == [framed(whole)]
    scene.relay.ended(BrokenError("lost"))
    with pytest.raises(BrokenError):
        await task
    assert scene.client.written == [framed(whole)]


async def test_without_chunks_only_the_payload_goes_on() -> None:
    scene = Scene(is_chunked=False)
    task = await scene.begin()
    scene.chunk(event("a"))
    scene.relay.payload(b"data: rest")
    scene.relay.ended(None)
    await task
    assert scene.client.written == [event("a"), b"data: rest"]


async def test_what_is_no_stream_goes_on_as_it_comes() -> None:
    scene = Scene(has_events=False)
    task = await scene.begin(b'{"a"')
    scene.relay.payload(b": 1}")
    scene.relay.ended(None)
    await task
    assert b"".join(scene.client.written) == framed(b'{"a"') + framed(b": 1}") + END


async def test_tokens_are_progress_and_heartbeats_are_none() -> None:
    scene = Scene()
    task = await scene.begin(event("a"))
    assert scene.wait.since_s == 100.0
    scene.clock = 110.0
    scene.chunk(PING)
    scene.relay.payload(PING)
    assert scene.wait.since_s == 100.0
    scene.chunk(PING + event("b"))
    assert scene.wait.since_s == 110.0
    task.cancel()


async def test_a_full_client_pauses_its_engine_whose_time_stands_still() -> None:
    scene = Scene(client=Client(writing_paused=True))
    task = await scene.begin(event("a"))
    assert scene.upstream.calls == ["pause"]
    assert scene.wait.is_paused
    scene.clock = 500.0
    scene.relay.resume_writing()
    assert scene.upstream.calls == ["pause", "resume"]
    assert (scene.wait.is_paused, scene.wait.since_s) == (False, 500.0)
    task.cancel()


async def test_a_client_that_leaves_frees_its_engine_at_once_and_gets_nothing_more() -> None:
    scene = Scene()
    task = await scene.begin(event("a"))
    flow = scene.client.flow
    assert flow is not None
    flow.connection_lost()
    assert scene.upstream.calls == ["close"]
    scene.chunk(event("b"))
    assert scene.client.written == [framed(event("a"))]
    task.cancel()
