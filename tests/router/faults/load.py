"""Clients that ask for one chat after the other, and what each of them saw."""

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
    streams: bool = True
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
    """`clients` at a time, each with a conversation of its own; the first `plain` do not stream.
    `max_tokens`: of each answer. `says`: what every answer must say; empty: anything.
    """

    url: str
    clients: int
    model: str = "demo"
    max_tokens: int = 12
    plain: int = 0
    says: str = ""
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
            seen = Seen(time.monotonic(), streams=number >= self.plain)
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
            "stream": seen.streams,
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": text}],
        }
        async with session.post("/v1/chat/completions", json=body) as response:
            seen.engine = response.headers.get("x-yaie-endpoint", "")
            if response.status != 200:
                seen.error = f"{response.status}: {(await response.read())[:200].decode()}"
                return
            said = await (_story if seen.streams else _text)(response, seen)
            if self.says and not seen.error and said != self.says:
                seen.error = f"it says {said!r}"


async def _text(response: aiohttp.ClientResponse, _: Seen) -> str:
    return str((await response.json())["choices"][0]["message"]["content"])


async def _story(response: aiohttp.ClientResponse, seen: Seen) -> str:
    """Read a stream. Return its text."""
    done, said = False, ""
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        done = line.startswith(b"data: [DONE]")
        event = {} if done else json.loads(line[6:])
        if "error" in event:
            seen.error = str(event["error"]["code"])
        elif not done and (text := event["choices"][0]["delta"].get("content")):
            seen.first_s = seen.first_s or time.monotonic()
            said += text
    if not done:
        seen.error = seen.error or "no end"
    return said
