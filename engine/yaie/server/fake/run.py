"""Serves a fake engine: the real server's process, with `FakeEngine` in place of an engine process.

`POST /fail` with KIND:SHARE words as its body changes which requests fail from then on; an empty
body ends all failures.
"""

import asyncio
import logging
import socket
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.checkpoint.source import default_served_name, resolve
from yaie.config import ModelInfo
from yaie.server.answers.response_body import EXTENSION
from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import AsyncEngine
from yaie.server.fake.engine import PAGE_TOKENS, PAGES, FakeEngine, cut_off
from yaie.server.fake.script import Script, faults_of
from yaie.server.options import ServeOptions
from yaie.server.process.assembly import create_service, public_app
from yaie.server.process.event_loop import loop_factory
from yaie.server.request.http import error_response
from yaie.server.web.listener import FirstServer
from yaie.server.web.protocol import DirectBody
from yaie.server.web.sockets import bind, url_of
from yaie_api.errors import YaieError
from yaie_api.http.access.gate import Gate
from yaie_api.http.access.head import Head
from yaie_api.http.access.origin import is_loopback
from yaie_api.logs import fields

log = logging.getLogger(__name__)

VOCABULARY: Final = 1 << 20
"""More than any tokenizer has: which ids clients name does not matter here."""
FAIL_PATH: Final = "/fail"
SPEECH: Final = "Every good engine says one word after another until it has said enough. "


def serve(
    options: ServeOptions,
    script: Script,
    source: str,
    *,
    max_model_len: int,
    seed: int | None = None,
) -> int:
    """Serve until a signal. `source`: a model, whose tokenizer and chat template are used.

    Raises:
        YaieError: there is no such model, or the address is in use.

    """
    folder = resolve(source, with_weights=False)
    info = ModelInfo(
        served_model_name=next(iter(options.names), default_served_name(source)),
        path=str(folder),
        architecture="Fake",
        parameters=0,
        weight_bytes=0,
        max_model_len=max_model_len,
        vocab_size=VOCABULARY,
        eos_token_ids=(),
        kv_pages=PAGES,
        page_size=PAGE_TOKENS,
        device="none",
        dtype="none",
        implementation="fake",
        tasks=("generate",),
    )
    with (
        bind(options.host, options.port) as listener,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_serve(options, script, info, listener, seed))
    return 0


async def _serve(
    options: ServeOptions,
    script: Script,
    info: ModelInfo,
    listener: socket.socket,
    seed: int | None,
) -> None:
    engine = AsyncEngine()
    service = create_service(options, engine)
    await service.load(info)
    words = service.tokenizer.encode(SPEECH, add_special_tokens=False)
    fake = FakeEngine(engine, script, words, seed=seed)
    engine.attach(fake, info)
    gate = Gate(options.api_keys, local_only=is_loopback(options.host), with_pages=False)
    app = Faulty(public_app(options, service), fake, gate)
    server = FirstServer(app, service, ApiServerPool(), drain_s=options.drain_s)
    heartbeat = asyncio.ensure_future(fake.run())
    log.info("ready", extra=fields(url=url_of(listener), models=", ".join(service.names)))
    try:
        await server.serve(sockets=[listener])
    finally:
        heartbeat.cancel()
        service.close()


class Faulty:
    """Lets the fake engine cut connections off; those that `gate` lets in tell it to fail."""

    def __init__(self, app: ASGIApp, fake: FakeEngine, gate: Gate) -> None:
        self._app = app
        self._fake = fake
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == FAIL_PATH and scope["method"] == "POST":
            response = await self._set(Request(scope, receive))
            await response(scope, receive, send)
            return
        body = scope.get("extensions", {}).get(EXTENSION)
        token = cut_off.set(body.abort if isinstance(body, DirectBody) else None)
        try:
            await self._app(scope, receive, send)
        finally:
            cut_off.reset(token)

    async def _set(self, request: Request) -> Response:
        try:
            self._gate.check(Head(request.method, FAIL_PATH, request.scope["headers"]))
            words = (await request.body()).decode(errors="replace")
            self._fake.set_faults(faults_of(words.split()))
        except YaieError as error:
            return error_response(error)
        except ValueError as error:
            return PlainTextResponse(f"{error}.\n", 400)
        return Response(status_code=204)
