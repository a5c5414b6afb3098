"""Connections to engines: made within a time, and kept open for a while after an answer."""

import asyncio
from collections import deque
from typing import Final

from yaie_router.upstream.http1.connection import Connection

IDLE_S: Final = 2.0
"""Idle connections close before an engine's own keep-alive timeout (5 s) can race a request."""


class Pool:
    """The idle connections of all engines. The youngest is used first."""

    def __init__(self, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[str, int], deque[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def take(self, address: str, port: int) -> Connection:
        """Return a connection that nobody uses.

        Raises:
            OSError: there is none to be had.
            TimeoutError: it took too long.

        """
        key = (address, port)
        idle = self._idle.get(key, ())
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await self._loop.create_connection(
                lambda: Connection(key), address, port
            )
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep the connection if it can be used again, else end it."""
        if self._is_closed or not connection.is_reusable:
            connection.close()
            return
        connection.rest()
        connection.idle_since_s = self._loop.time()
        self._idle.setdefault(connection.key, deque()).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_S, self._close_idle)

    def close(self) -> None:
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def _close_idle(self) -> None:
        latest_s = self._loop.time() - IDLE_S
        for key, idle in list(self._idle.items()):
            while idle and (idle[0].idle_since_s <= latest_s or not idle[0].is_open):
                idle.popleft().close()
            if not idle:
                del self._idle[key]
        self._sweep = self._loop.call_later(IDLE_S / 2, self._close_idle) if self._idle else None
