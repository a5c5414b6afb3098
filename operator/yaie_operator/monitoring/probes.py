"""The operator's HTTP port: probes and metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from yaie_api import names
from yaie_operator.monitoring.metrics import Metrics


@asynccontextmanager
async def serve(
    metrics: Metrics, *, host: str, port: int, is_ready: Callable[[], bool]
) -> AsyncIterator[int]:
    """Serve /livez, /readyz and /metrics; yields the bound port (`port=0`: any free port)."""

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if is_ready() else web.Response(status=503, text="wait\n")

    async def render(_: web.Request) -> web.Response:
        headers = {"Content-Type": metrics.content_type}
        return web.Response(body=await metrics.render(), headers=headers)

    app = web.Application()
    app.router.add_get(names.PATH_LIVE, live)
    app.router.add_get(names.PATH_READY, ready)
    app.router.add_get(names.PATH_METRICS, render)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
