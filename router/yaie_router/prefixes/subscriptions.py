"""Keeps one subscriber for each engine that the directory knows."""

import asyncio
from collections.abc import Iterator

import aiohttp

from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint
from yaie_router.prefixes.placer import Placer
from yaie_router.prefixes.subscriber import Subscriber


class Subscriptions:
    """Callers call `changed` after each change of the directory."""

    def __init__(self, directory: Directory, placer: Placer) -> None:
        self._directory = directory
        self._placer = placer
        self._tasks: dict[tuple[str, Endpoint], asyncio.Task[None]] = {}
        self._change = asyncio.Event()

    def changed(self) -> None:
        """Have `run` look at the directory again."""
        self._placer.retain(self._directory.all())
        self._change.set()

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Read from every engine until cancelled."""
        try:
            while True:
                self._change.clear()
                self._follow(session)
                await self._change.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()

    def _follow(self, session: aiohttp.ClientSession) -> None:
        wanted = set(self._wanted())
        for key in self._tasks.keys() - wanted:
            self._tasks.pop(key).cancel()
        for model, endpoint in wanted - self._tasks.keys():
            subscriber = Subscriber(self._placer, model, endpoint)
            self._tasks[model, endpoint] = asyncio.create_task(subscriber.run(session))

    def _wanted(self) -> Iterator[tuple[str, Endpoint]]:
        for model in self._directory.all():
            if model.policy == "PrefixAffinity":
                yield from ((model.name, endpoint) for endpoint in model.endpoints)


def feed_session(connect_timeout_s: float) -> aiohttp.ClientSession:
    """Make the client session of all subscribers; the caller closes it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
