"""An HTTP process that is not the first of its server: HTTP only, the rest it is told.

Signals go to the first one. This one ends when it has drained as told, or at once when its control
socket closes: the first process has ended then, however that came.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from functools import partial
from pathlib import Path

from yaie.server.engine import api_server_pool
from yaie.server.engine.api_server_pool import ApiServerPool, Detach, Drain, Follow, decode_order
from yaie.server.engine.client import AsyncEngine
from yaie.server.engine.follower import Follower
from yaie.server.options import ServeOptions
from yaie.server.peers import Peers
from yaie.server.process.assembly import answer_peer, create_service, public_app
from yaie.server.process.event_loop import loop_factory
from yaie.server.web.listener import DrainingServer
from yaie.server.web.sockets import join
from yaie_api.errors import YaieError
from yaie_api.logs import fields

log = logging.getLogger(__name__)


def hire(
    options: ServeOptions, listener: socket.socket, admin: socket.socket | None, folder: Path
) -> ApiServerPool:
    """Start all others, each with a listener of its own on the first one's address.

    `folder`: for their sockets. To be called before this process has threads or an event loop.
    """
    count = options.api_server_count
    first = [one for one in (listener, admin) if one is not None]
    with contextlib.ExitStack() as stack:
        # This process keeps none of them open: connections would wait there for nobody.
        own = [stack.enter_context(join(listener)) for _ in range(1, count)]
        work = []
        for place, one in enumerate(own, 1):
            foreign = [*first, *(other for other in own if other is not one)]
            work.append(partial(_run, options, Peers(folder, place, count), one, foreign))
        return api_server_pool.start(work)


def _run(
    options: ServeOptions,
    peers: Peers,
    listener: socket.socket,
    foreign: list[socket.socket],
    control: socket.socket,
) -> int:
    """In the new process, which has the sockets of all others too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for one in foreign:
        one.close()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(options, peers, listener, control))
    return 0


async def _serve(
    options: ServeOptions, peers: Peers, listener: socket.socket, control: socket.socket
) -> None:
    service = create_service(options, AsyncEngine(), peers)
    server = DrainingServer(public_app(options, service), service, drain_s=options.drain_s)
    follower = Follower(service.engine, service.load, _leave_failure, _leave_stage)
    orders = asyncio.ensure_future(_obey(control, service.engine, follower, server))
    orders.add_done_callback(lambda _: server.end_now())
    try:
        async with peers.answering(partial(answer_peer, service)):
            await server.serve(sockets=[listener])
    finally:
        orders.cancel()
        await asyncio.gather(orders, return_exceptions=True)
        follower.leave()


async def _obey(
    control: socket.socket, engine: AsyncEngine, follower: Follower, server: DrainingServer
) -> None:
    """Do what the first process says, until it has no more to say."""
    reader, writer = await asyncio.open_unix_connection(sock=control)
    with contextlib.closing(writer):
        while line := await reader.readline():
            match decode_order(line):
                case Follow(address):
                    follower.follow(address)
                case Detach(state):
                    follower.leave()
                    engine.detach(state)
                case Drain():
                    server.drain()


def _leave_failure(error: YaieError) -> None:
    """The first process meets the same one: it says so, and ends the server or the engine."""
    log.debug("engine cannot be followed", extra=fields(reason=error.message))


def _leave_stage(stage: str) -> None:
    """The first process logs it."""
    del stage
