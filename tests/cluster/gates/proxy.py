"""A proxy on loopback that holds one chosen write of the operator, before or after the API server
has it, until the test lets it go on.
"""

import asyncio
import threading
from pathlib import Path
from typing import Literal

from aiohttp import web

from cluster.fault_proxy import FaultProxy

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
Side = Literal["before", "after"]


class GateProxy(FaultProxy):
    """Counts the writes in one namespace from `arm` on, and holds one of them."""

    def __init__(self, server: str, ca: Path, namespace: str) -> None:
        super().__init__(server, ca, set())
        self._place = f"/namespaces/{namespace}/"
        self._wanted = 0
        self._side: Side = "before"
        self._seen = 0
        self._held = threading.Event()
        self._go_on = asyncio.Event()
        self.what = ""
        """Method and path of the write that was held last."""

    def arm(self, number: int, side: Side = "before") -> None:
        """Hold the write of this number, counted from 1. 0: none."""
        self._held.clear()
        self._go_on.clear()
        self._seen, self._side, self._wanted = 0, side, number

    def holds(self, timeout_s: float) -> bool:
        """Whether the write comes within this time."""
        return self._held.wait(timeout_s)

    def release(self) -> None:
        self._wanted = 0
        self._loop.call_soon_threadsafe(self._go_on.set)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method not in WRITES or self._place not in request.path:
            return await super()._handle(request)
        self._seen += 1
        if self._seen != self._wanted:
            return await super()._handle(request)
        self.what = f"{request.method} {request.path.partition(self._place)[2]}"
        if self._side == "before":
            await self._hold()
            return await super()._handle(request)
        answer = await self._whole(request)
        await self._hold()
        return answer

    async def _hold(self) -> None:
        self._held.set()
        await self._go_on.wait()

    async def _whole(self, request: web.Request) -> web.Response:
        """Pass a request on, and keep the answer."""
        url, body = self._server + request.path_qs, await request.read() or None
        headers = self.passed_on(request.headers)
        async with self._session.request(request.method, url, headers=headers, data=body) as got:
            return web.Response(
                status=got.status, headers=self.passed_on(got.headers), body=await got.read()
            )
