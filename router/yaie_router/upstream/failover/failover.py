"""Has streams go on at another engine when their own has died.

    engine a ──✂   words of all notes ──▶ body + words ──▶ engine b ──▶ the rest of the stream

The engine that goes on computes the prompt and the tokens so far again: a replay. So many at a time
are sent to an engine; others wait for their turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from yaie_api.logs import fields
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.metrics import Metrics
from yaie_router.upstream.attempt import AttemptError
from yaie_router.upstream.failover import decision
from yaie_router.upstream.failover.held_bodies import HeldBodies
from yaie_router.upstream.failover.replays import Replays
from yaie_router.upstream.failover.resumable import (
    NotContinuedError,
    Resumable,
    StreamBrokenError,
)

log = logging.getLogger(__name__)

PATHS: Final = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/messages"))
"""Paths whose streams can go on. What /v1/responses makes belongs to the engine that stores it."""
_FRUITLESS: Final = frozenset(("disconnect", "timeout", "5xx"))


@dataclass(frozen=True)
class Peers:
    """What a stream may choose from, asked anew for each attempt."""

    model: Callable[[], Model]
    unusable: Callable[[], Collection[str]]
    loads: Mapping[str, int]


@dataclass
class _Tries:
    """What was tried since the stream's last token."""

    attempts: int = 0
    fruitless: int = 1
    words: int = 0
    begun_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())


class Failover:
    """The failovers of all streams.

    Args:
        metrics: count them.
        most_replays: replays that one engine computes at a time; 0: no stream goes on.
        most_bytes: of all requests' bodies that are kept for it.
        wait_s: how long a stream waits for its turn.

    """

    def __init__(
        self, metrics: Metrics, *, most_replays: int, most_bytes: int, wait_s: float
    ) -> None:
        self.bodies = HeldBodies(most_bytes)
        self._metrics = metrics
        self._most_replays = most_replays
        self._wait_s = wait_s
        self._replays = Replays()

    def begin(self, path: str, *, streams: bool) -> Resumable | None:
        """Return the state of a new stream; None: it could not go on anywhere else."""
        return Resumable() if streams and self._most_replays and path in PATHS else None

    async def go_on(
        self,
        stream: Resumable,
        peers: Peers,
        attempt: Callable[[Endpoint], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse | None:
        """Have another engine answer the rest; None: none does, and the stream has to be ended."""
        tries = _Tries(words=len(stream.gate.words))
        while True:
            stream.gate.another()
            try:
                outcome, answered = await self._once(stream, peers, attempt, tries)
            except BaseException:  # cancelled: the client has left
                self._tell(peers, "client_left", tries)
                raise
            if outcome is None:
                continue
            if answered is None:
                self._tell(peers, outcome, tries)
            return answered

    async def _once(
        self,
        stream: Resumable,
        peers: Peers,
        attempt: Callable[[Endpoint], Awaitable[web.StreamResponse]],
        tries: _Tries,
    ) -> tuple[decision.Outcome | None, web.StreamResponse | None]:
        """Try one engine. No outcome: another one may try."""
        if not decision.may_try(attempts=tries.attempts, fruitless=tries.fruitless):
            return "lost", None
        found = await self._peer(peers)
        if isinstance(found, str):
            return found, None
        stream.turn = self._replays.begin(found.name)
        try:
            answered = await attempt(found)
        except NotContinuedError:
            return "refused", None
        except AttemptError as failure:
            tries.attempts += 1
            tries.fruitless += failure.cause in _FRUITLESS
            return None, None
        except StreamBrokenError:
            self._broken_again(stream, peers, tries)
            return None, None
        finally:
            stream.turn.end()
        self._tell(peers, "continued", tries)
        return "continued", answered

    def _broken_again(self, stream: Resumable, peers: Peers, tries: _Tries) -> None:
        """The engine that went on has died, too: with new tokens everything begins anew."""
        if len(stream.gate.words) > tries.words:
            self._tell(peers, "continued", tries)
            tries.attempts, tries.fruitless, tries.words = 0, 1, len(stream.gate.words)
        else:
            tries.attempts += 1
            tries.fruitless += 1

    async def _peer(self, peers: Peers) -> Endpoint | decision.Room:
        """Choose an engine; wait while all that are healthy have as many replays as they may."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        while True:
            found = decision.peer(
                peers.model().endpoints,
                unusable=peers.unusable(),
                loads=peers.loads,
                replays=self._replays.counts,
                most_replays=self._most_replays,
            )
            if found != "no_room" or loop.time() >= until_s:
                return found
            try:
                async with asyncio.timeout_at(until_s):
                    await self._replays.change()
            except TimeoutError:
                continue

    def _tell(self, peers: Peers, outcome: decision.Outcome, tries: _Tries) -> None:
        model = peers.model().name
        self._metrics.failovers.labels(model, outcome).inc()
        seconds = asyncio.get_running_loop().time() - tries.begun_s
        log.warning(
            "failover",
            extra=fields(
                model=model, outcome=outcome, words=tries.words, seconds=round(seconds, 3)
            ),
        )
