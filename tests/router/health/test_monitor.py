"""Probes of engines, over real connections."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from ports import free_port
from yaie_router.discovery.objects import Endpoint
from yaie_router.health.monitor import _is_ready


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process may open nothing more, as if it had thousands of connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    largest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (largest + 2, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_probe_for_which_the_router_has_no_descriptor_blames_no_engine() -> None:
    app = web.Application()
    app.router.add_get("/readyz", _ok)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        engine = Endpoint("engine", "127.0.0.1", server.port or 0)
        with no_descriptor_left():
            assert await _is_ready(session, engine) is None
        assert await _is_ready(session, engine) is True


async def test_an_engine_that_nobody_listens_for_is_not_ready() -> None:
    async with aiohttp.ClientSession() as session:
        assert await _is_ready(session, Endpoint("engine", "127.0.0.1", free_port())) is False


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")
