"""Reads what one engine publishes about its prefix cache, for as long as the engine is there.

connect ──200──▶ snapshot, changes, … ──ended, gap──▶ pause (0.1 s … 5 s, with jitter) ──▶ connect
        ──404, 401, …──▶ the engine publishes nothing: ask again after a minute
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from yaie_api.logs import fields
from yaie_api.names import PATH_PREFIXES
from yaie_api.prefix import Outcome, decode
from yaie_router.discovery.objects import Endpoint
from yaie_router.prefixes.holdings import TooManyKeysError
from yaie_router.prefixes.placer import Placer

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
SILENT_PAUSE_S: Final = 60.0
SILENCE_S: Final = 30.0
"""An engine writes at least a line a second, but none in the middle of a step."""
MOST_LINE_BYTES: Final = 1 << 17


_BROKEN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError)


class SilentError(Exception):
    """The engine publishes nothing that this router may, or wants to, read."""


class Subscriber:
    """One engine of one model."""

    def __init__(
        self,
        placer: Placer,
        model: str,
        endpoint: Endpoint,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._placer = placer
        self._model = model
        self._endpoint = endpoint
        self._draw = draw
        self._pause_s = FIRST_PAUSE_S

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Read until cancelled."""
        name = self._endpoint.name
        while True:
            try:
                await self._read(session)
            except SilentError as reason:
                told = fields(endpoint=name, reason=str(reason))
                log.info("an engine's prefixes are not known", extra=told)
                self._placer.silent(self._model, name)
                self._pause_s = SILENT_PAUSE_S
            except _BROKEN as error:
                log.debug(
                    "a stream of prefixes ended", extra=fields(endpoint=name, error=repr(error))
                )
            self._placer.lost(self._model, name)
            await asyncio.sleep(self._pause_s * (0.5 + self._draw()))
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        url = self._endpoint.base_url + PATH_PREFIXES
        timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
        async with session.get(
            url, timeout=timeout, allow_redirects=False, read_bufsize=MOST_LINE_BYTES // 2
        ) as answer:
            if answer.status != 200:
                if answer.status < 500:
                    raise SilentError(f"HTTP {answer.status}")
                return
            while line := await answer.content.readline():
                if not self._take(line):
                    return

    def _take(self, line: bytes) -> bool:
        """Take a line. Returns whether those that follow it can be read, too."""
        try:
            outcome = self._placer.take(self._model, self._endpoint.name, decode(line))
        except TooManyKeysError:
            raise SilentError("it has more keys than a router keeps") from None
        if outcome is Outcome.APPLIED:
            self._pause_s = FIRST_PAUSE_S
        return outcome is not Outcome.NEEDS_SNAPSHOT
