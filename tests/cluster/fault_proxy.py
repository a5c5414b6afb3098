"""A proxy on loopback in front of an API server, which breaks lists and watches when told to."""

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

HOLE = "hole"
"""The mode in which requests get no answer and open watches say nothing, for ever."""
HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length"}


class FaultProxy:
    """`mode`: "" (works), a status that lists and watches get, or HOLE. `plurals`: whose."""

    def __init__(self, server: str, ca: Path, plurals: set[str]) -> None:
        self.mode = ""
        self.port = 0
        self._server = server
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._plurals = plurals
        self._loop = asyncio.new_event_loop()
        self._bound = threading.Event()
        self._end = asyncio.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        thread.start()
        assert self._bound.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join(10)
            self._loop.close()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """The same user, through this proxy."""
        content = json.loads(original.read_text())
        content["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return path

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls), auto_decompress=False
        ) as self._session:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            self._bound.set()
            await self._end.wait()
            await runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._handle(request)
        except aiohttp.ClientConnectionError:
            raise asyncio.CancelledError from None  # the client or the server has gone

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        breaks = request.method == "GET" and request.path.rpartition("/")[2] in self._plurals
        if breaks and self.mode:
            return await self._fault(self.mode)
        headers = self.passed_on(request.headers)
        url, body = self._server + request.path_qs, await request.read() or None
        async with self._session.request(request.method, url, headers=headers, data=body) as got:
            response = web.StreamResponse(status=got.status, headers=self.passed_on(got.headers))
            await response.prepare(request)
            await self._pass_on(got, response, breaks=breaks)
        return response

    @staticmethod
    def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in headers.items() if key.lower() not in HOP_BY_HOP}

    async def _fault(self, mode: str) -> web.Response:
        if mode == HOLE:
            await asyncio.Event().wait()
        status: dict[str, Any] = {"kind": "Status", "status": "Failure", "code": int(mode)}
        return web.json_response(status | {"message": "broken on purpose"}, status=int(mode))

    async def _pass_on(
        self, got: aiohttp.ClientResponse, response: web.StreamResponse, *, breaks: bool
    ) -> None:
        """Pass the body on. A fault ends an open watch, or silences it for ever."""
        reading = asyncio.ensure_future(got.content.readany())
        while True:
            await asyncio.wait({reading}, timeout=0.1)
            if breaks and self.mode:
                reading.cancel()
                if self.mode == HOLE:
                    await asyncio.Event().wait()
                return
            if reading.done():
                if not (chunk := reading.result()):
                    return
                await response.write(chunk)
                reading = asyncio.ensure_future(got.content.readany())
