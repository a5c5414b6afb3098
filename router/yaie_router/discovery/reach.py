"""Asks engines that wait to be ready whether they answer this router.

An engine's pod is ready, and so in use, only after the operator has opened its readiness gate,
which it does by what the routers say here (`yaie_router_engine_reached`). If a model has no ready
engine at all, the `Directory` takes those that answer: whether requests are served must not depend
on the operator.
"""

import asyncio
from typing import Final

import aiohttp

from yaie_api.names import PATH_READY
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint

PERIOD_S: Final = 0.5
TIMEOUT_S: Final = 2.0
MOST_ASKED: Final = 64
"""At a time."""


class Reach:
    """Keeps a directory's knowledge of which waiting engines answer."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._turn = asyncio.Semaphore(MOST_ASKED)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Ask until cancelled."""
        while True:
            await self.look(session)
            await asyncio.sleep(PERIOD_S)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Ask every waiting engine once."""
        waiting = [endpoint for model in self._directory.all() for endpoint in model.waiting]
        answers = await asyncio.gather(*(self._answers(session, one) for one in waiting))
        found = zip(waiting, answers, strict=True)
        self._directory.reach(frozenset(one.name for one, answered in found if answered))

    async def _answers(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> bool:
        url = endpoint.base_url + PATH_READY
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._turn:
            try:
                async with session.get(url, timeout=timeout, allow_redirects=False) as answer:
                    return answer.status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False
