"""Doubles with real sockets: an engine whose misbehaviour is set by knobs, and a Kubernetes-style
API (list and watch) that can forget its history, refuse or go away.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web


def event(text: str) -> bytes:
    """One SSE event of a chat stream."""
    chunk = {
        "choices": [{"index": 0, "delta": {"content": text}}],
        "object": "chat.completion.chunk",
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass
class Received:
    """One request as the engine got it."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeEngine:
    """An HTTP/1.1 server of one answer, with knobs. Durations in seconds.

    `hold_at`: before this piece it waits until `resume` is set. `ready`: the status of `/readyz`;
    None: that is never answered.
    """

    name: str = "engine"
    pieces: list[bytes] = field(default_factory=lambda: [event("a"), event("b"), DONE])
    status: str = "200 OK"
    content_type: str = "text/event-stream; charset=utf-8"
    extra_headers: list[tuple[str, str]] = field(default_factory=list)
    content_length: int | None = None
    ttft_s: float = 0.0
    itl_s: float = 0.0
    reset_after_pieces: int | None = None
    close_before_head: bool = False
    stall_before_head: bool = False
    stall_after_head: bool = False
    hold_at: int | None = None
    ready: str | None = "200 OK"

    def __post_init__(self) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.probes = 0
        self.left = asyncio.Event()
        self.resume = asyncio.Event()
        self.sent_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> "FakeEngine":
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Close the port and every connection, as a killed process does."""
        self.server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:-2])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = head[0].split()[1]
        if path == "/readyz":
            return await self._tell_readiness(reader, writer)
        self.received.append(Received(path, headers, body))
        watcher = asyncio.create_task(self._watch(reader))
        try:
            return await self._answer(writer)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _tell_readiness(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.probes += 1
        if self.ready is None:
            await reader.read()
            return False
        writer.write(f"HTTP/1.1 {self.ready}\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        return True

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        try:
            gone = not await reader.read(1)
        except ConnectionError:
            gone = True
        if gone:
            self.left.set()

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        if self.close_before_head:
            return False
        if self.stall_before_head:
            await self.left.wait()
            return False
        framing = (
            f"content-length: {self.content_length}"
            if self.content_length is not None
            else "transfer-encoding: chunked"
        )
        lines = [f"HTTP/1.1 {self.status}", f"content-type: {self.content_type}", framing]
        lines += [f"{name}: {value}" for name, value in self.extra_headers]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if self.stall_after_head:
            await self.left.wait()
            return False
        await asyncio.sleep(self.ttft_s)
        for index, piece in enumerate(self.pieces):
            if index == self.reset_after_pieces:
                await writer.drain()
                await asyncio.sleep(0.02)  # let the bytes leave before the connection is torn
                writer.transport.abort()
                return False
            if index == self.hold_at:
                await self.resume.wait()
            chunked = self.content_length is None
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
            self.sent_bytes += len(piece)
            if self.itl_s:
                await asyncio.sleep(self.itl_s)
        if self.content_length is None:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


class RawEngine(FakeEngine):
    """An engine that sends these pieces as they are, a little apart, and closes the connection."""

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        return False


def inference_model(name: str = "demo", **spec: Any) -> dict[str, Any]:
    """An InferenceModel as the API stores it."""
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": name, "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"model": {"source": "builtin://yaie-demo"}} | spec,
    }


def endpoint_slice(model: str, *engines: FakeEngine, suffix: str = "0") -> dict[str, Any]:
    """An EndpointSlice; all its engines must share one port."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{model}-{suffix}",
            "labels": {
                "yaie.dev/model": model,
                "kubernetes.io/service-name": model,
                "app.kubernetes.io/managed-by": "yaie-operator",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": engines[0].port if engines else 8000}],
        "endpoints": [
            {
                "addresses": ["127.0.0.1"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "name": engine.name},
            }
            for engine in engines
        ],
    }


class FakeApi:
    """List and watch of two resources on a unix socket. Each change gets the next version.
    `nonsense`: what a watch sends before its next change, once.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.objects: dict[str, dict[str, dict[str, Any]]] = {
            "inferencemodels": {},
            "endpointslices": {},
        }
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        self.lists = 0
        self.status: int | None = None
        self.page = 1000
        self.nonsense: list[bytes] = []
        self.watch_queries: list[dict[str, str]] = []
        self._versions = itertools.count(1)
        self._version = 0
        self._changed = asyncio.Condition()
        self._epoch = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/apis/{group}/{version}/namespaces/{ns}/{plural}", self._get)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self.hang_up()
            await self._runner.cleanup()
            self._runner = None

    async def put(self, item: dict[str, Any]) -> None:
        plural = item["kind"].lower() + "s"
        name = item["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects[plural] else "ADDED"
        self.objects[plural][name] = item
        await self._record(kind, plural, item)

    async def delete(self, plural: str, name: str) -> None:
        await self._record("DELETED", plural, self.objects[plural].pop(name))

    def put_silently(self, item: dict[str, Any]) -> None:
        """A change that no watch ever tells."""
        self.objects[item["kind"].lower() + "s"][item["metadata"]["name"]] = item

    async def hang_up(self) -> None:
        """End every open watch."""
        async with self._changed:
            self._epoch += 1
            self._changed.notify_all()

    async def forget_history(self) -> None:
        """Watches from before now get 410."""
        self.oldest = next(self._versions)
        self._version = self.oldest
        self.history.clear()
        await self.hang_up()

    async def _record(self, kind: str, plural: str, item: dict[str, Any]) -> None:
        async with self._changed:
            self._version = next(self._versions)
            item["metadata"]["resourceVersion"] = str(self._version)
            self.history.append((self._version, plural, {"type": kind, "object": dict(item)}))
            self._changed.notify_all()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if self.status is not None:
            return web.json_response({"kind": "Status"}, status=self.status)
        plural = request.match_info["plural"]
        if request.query.get("watch") != "true":
            return self._list(plural, int(request.query.get("continue", "0")))
        self.watch_queries.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for line in self._watch(plural, int(request.query["resourceVersion"])):
                await response.write(line)
        return response

    def _list(self, plural: str, start: int) -> web.Response:
        self.lists += 1
        items = list(self.objects[plural].values())
        page = items[start : start + self.page]
        meta = {"resourceVersion": str(self._version)}
        if start + self.page < len(items):
            meta["continue"] = str(start + self.page)
        return web.json_response({"items": page, "metadata": meta})

    async def _watch(self, plural: str, since: int) -> AsyncIterator[bytes]:
        epoch = self._epoch
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            yield json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            return
        while epoch == self._epoch:
            news = [e for v, p, e in self.history if v > since and p == plural]
            since = self._version
            for entry in news:
                if self.nonsense:
                    yield self.nonsense.pop()
                yield json.dumps(entry).encode() + b"\n"
            async with self._changed:
                if since == self._version and epoch == self._epoch:
                    await self._changed.wait()
