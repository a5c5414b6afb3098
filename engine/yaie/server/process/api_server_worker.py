"""The other HTTP processes of a server. Each serves HTTP and obeys the first one.

Only the first process handles signals and the engine process. A worker ends when it has drained on
order, or at once when its control socket closes, which means that the first process has ended.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from functools import partial
from pathlib import Path

from yaie.config import ModelInfo
from yaie.server.engine import api_server_pool
from yaie.server.engine.api_server_pool import ApiServerPool, Detach, Drain, Listen, decode_order
from yaie.server.engine.client import AsyncEngine
from yaie.server.engine.output_handler import OutputHandler
from yaie.server.options import ServeOptions
from yaie.server.peers import Peers
from yaie.server.process.assembly import answer_peer, create_service, public_app
from yaie.server.process.event_loop import loop_factory
from yaie.server.web.listener import DrainingServer
from yaie.server.web.sockets import join
from yaie_api import garbage
from yaie_api.errors import YaieError
from yaie_api.logs import fields

log = logging.getLogger(__name__)


def hire(
    options: ServeOptions, listener: socket.socket, admin: socket.socket | None, folder: Path
) -> ApiServerPool:
    """Start the other HTTP processes, each with its own listener on the first one's address.

    `folder`: for the sockets of `Peers`. Call it before this process has threads or an event loop.
    """
    count = options.api_server_count
    first = [one for one in (listener, admin) if one is not None]
    with contextlib.ExitStack() as stack:
        # This process closes its copies: the kernel would queue connections on them that no
        # process accepts.
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
    """Run the new process. It inherits every socket and closes `foreign`, those of the others."""
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
    engine = AsyncEngine(watch_prefixes=bool(options.prefix_key))
    service = create_service(options, engine, peers)
    server = DrainingServer(public_app(options, service), service, drain_s=options.drain_s)

    async def on_ready(info: ModelInfo) -> None:
        await service.load(info)
        garbage.freeze()

    outputs = OutputHandler(engine, service.load_tokenizer, on_ready, _leave_failure, _leave_stage)
    collecting = asyncio.ensure_future(garbage.collect_when_idle(lambda: engine.num_live == 0))
    orders = asyncio.ensure_future(_obey(control, engine, outputs, server))
    orders.add_done_callback(lambda _: server.end_now())
    try:
        async with peers.answering(partial(answer_peer, service)):
            await server.serve(sockets=[listener])
    finally:
        for task in (orders, collecting):
            task.cancel()
        await asyncio.gather(orders, collecting, return_exceptions=True)
        outputs.close()
        service.close()


async def _obey(
    control: socket.socket, engine: AsyncEngine, outputs: OutputHandler, server: DrainingServer
) -> None:
    """Carry out the orders of the first process until it closes the control socket."""
    reader, writer = await asyncio.open_unix_connection(sock=control)
    with contextlib.closing(writer):
        while line := await reader.readline():
            match decode_order(line):
                case Listen(address):
                    outputs.listen(address)
                case Detach(state):
                    outputs.close()
                    engine.detach(state)
                case Drain():
                    server.drain()


def _leave_failure(error: YaieError) -> None:
    """Only log it: the first process has the same failure, reports it and handles it."""
    log.debug("engine cannot serve", extra=fields(reason=error.message))


def _leave_stage(stage: str) -> None:
    """Ignore it: the first process logs the stages."""
    del stage
