"""Clients that stream one chat after the other, and what each of them saw."""

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field

import aiohttp


@dataclass
class Seen:
    """One request as its client saw it. Times on the monotonic clock."""

    begun_s: float
    engine: str = ""
    first_s: float = 0.0
    ended_s: float = 0.0
    error: str = ""

    @property
    def waited_s(self) -> float:
        """For its first token, or for an answer without one."""
        return (self.first_s or self.ended_s) - self.begun_s


@dataclass
class Load:
    """`clients` at a time, each with a conversation of its own. `max_tokens`: of each answer."""

    url: str
    clients: int
    model: str = "demo"
    max_tokens: int = 12
    seen: list[Seen] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Ask until `stop` is set and every answer has ended."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self.url, connector=connector) as session:
            await asyncio.gather(*(self._client(session, i) for i in range(self.clients)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        for turn in itertools.count():
            if self.stop.is_set():
                return
            seen = Seen(time.monotonic())
            self.seen.append(seen)
            try:
                await self._ask(session, f"client {number}, turn {turn}", seen)
            except aiohttp.ClientError as error:
                seen.error = type(error).__name__
            seen.ended_s = time.monotonic()
            await asyncio.sleep(0.02)

    async def _ask(self, session: aiohttp.ClientSession, text: str, seen: Seen) -> None:
        body = {
            "model": self.model,
            "stream": True,
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": text}],
        }
        async with session.post("/v1/chat/completions", json=body) as response:
            seen.engine = response.headers.get("x-yaie-endpoint", "")
            if response.status != 200:
                seen.error = f"{response.status}: {(await response.read())[:200].decode()}"
                return
            done = False
            async for line in response.content:
                if not line.startswith(b"data: "):
                    continue
                done = line.startswith(b"data: [DONE]")
                event = {} if done else json.loads(line[6:])
                if "error" in event:
                    seen.error = str(event["error"]["code"])
                elif not done and event["choices"][0]["delta"].get("content"):
                    seen.first_s = seen.first_s or time.monotonic()
            if not done:
                seen.error = "no end"
