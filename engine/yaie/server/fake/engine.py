"""Takes the server's commands where an engine process would, and plays a script for each request.

What clients see is written by the real server: it checks requests, renders templates, encodes
events, counts metrics. Only tokens and their times are made up here.
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from yaie.core.messages import (
    Abort,
    Accepted,
    Command,
    Generate,
    Rejected,
    ResetPrefixCache,
    Stats,
    Tokens,
)
from yaie.server.engine.client import AsyncEngine
from yaie.server.fake.script import AFTER_TOKENS, Fault, Script

cut_off: Final[contextvars.ContextVar[Callable[[], None] | None]] = contextvars.ContextVar(
    "cut_off", default=None
)
"""Breaks the connection of the request that the current task serves."""

PAGE_TOKENS: Final = 16
PAGES: Final = 65_536
HEARD_EVERY_S: Final = 0.5
HANG_S: Final = 120.0
"""A request that gets no answer is given up after this long: its client has left, unseen."""
_REFUSALS: Final = {
    "5xx": (500, "engine_error", "The engine failed on this request.", None),
    "429": (429, "queue_full", "The queue is full.", 1.0),
    "503": (503, "unavailable", "The engine is not available.", 1.0),
}


@dataclass
class _Play:
    """One request. `due_s`: when its next token is, on the event loop's clock."""

    request: Generate
    fault: str | None
    cut: Callable[[], None] | None
    arrived_s: float
    limit: int
    due_s: float = 0.0
    said: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def pages(self) -> int:
        return -(-(len(self.request.prompt_token_ids) + self.said) // PAGE_TOKENS)


class FakeEngine:
    """Implements the server's `Channel`. `words`: the token ids that every answer repeats."""

    def __init__(
        self, engine: AsyncEngine, script: Script, words: Sequence[int], *, seed: int | None = None
    ) -> None:
        self._engine = engine
        self._script = script
        self._words = words
        self._random = random.Random(seed)  # noqa: S311 - it chooses which requests fail
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, _Play] = {}
        self._waiting: deque[_Play] = deque()
        self._prompt_tokens = 0
        self._said_tokens = 0

    def set_faults(self, faults: tuple[Fault, ...]) -> None:
        """Change which requests fail from now on."""
        self._script = replace(self._script, faults=faults)

    async def run(self) -> None:
        """Tell the server that the engine lives, as long as it does."""
        while True:
            self._engine.heard()
            self._engine.dispatch(self._stats())
            await asyncio.sleep(HEARD_EVERY_S)

    def send(self, command: Command) -> None:
        if isinstance(command, Generate):
            self._take(command)
        elif isinstance(command, Abort):
            self._abort(command)
        elif isinstance(command, ResetPrefixCache):
            self._loop.call_soon(self._engine.dispatch, Accepted(command.request_id))
        # The other commands are about prefixes that a cache holds, and here it holds none.

    def _take(self, request: Generate) -> None:
        fault = self._script.fault_at(self._random.random())
        if fault in _REFUSALS:
            refusal = Rejected(request.request_id, *_told(fault))
            self._loop.call_soon(self._engine.dispatch, refusal)
            return
        if fault == "hang":
            given_up = Rejected(request.request_id, *_told("503"))
            self._loop.call_later(HANG_S, self._engine.dispatch, given_up)
            return
        self._loop.call_soon(self._engine.dispatch, Accepted(request.request_id))
        limit = min(request.sampling.max_tokens or 0, self._script.output_tokens)
        play = _Play(request, fault, cut_off.get(), self._loop.time(), limit)
        play.said = len(request.resumed_token_ids)
        self._prompt_tokens += len(request.prompt_token_ids)
        self._waiting.append(play)
        self._fill()

    def _abort(self, command: Abort) -> None:
        if command.index is not None:  # the other outputs go on
            return
        self._waiting = deque(
            p for p in self._waiting if p.request.request_id != command.request_id
        )
        self._end(command.request_id)

    def _fill(self) -> None:
        """Begin requests that wait, while there is room."""
        while self._waiting and len(self._running) < self._script.max_num_seqs:
            play = self._waiting.popleft()
            self._running[play.request.request_id] = play
            queued_s = self._loop.time() - play.arrived_s
            play.due_s = self._loop.time() + self._script.ttft_s
            if play.fault != "heartbeats":
                play.timer = self._loop.call_at(play.due_s, self._speak, play, queued_s)

    def _speak(self, play: _Play, queued_s: float | None = None) -> None:
        """Say the next token, or fail."""
        if play.said >= AFTER_TOKENS and play.fault is not None:
            self._fail(play)
            return
        word = self._words[play.said % len(self._words)]
        ids = (word,) if play.limit else ()
        play.said += 1
        self._said_tokens += len(ids) * play.request.sampling.n
        is_last = play.said >= play.limit
        reason = "length" if play.limit == play.request.sampling.max_tokens else "stop"
        for index in range(play.request.sampling.n):
            self._engine.dispatch(
                Tokens(
                    play.request.request_id,
                    ids,
                    reason if is_last else None,  # type: ignore[arg-type]  # one of the two literals
                    index=index,
                    queued_s=queued_s,
                )
            )
        if is_last:
            self._end(play.request.request_id)
            return
        play.due_s += self._script.itl_s
        play.timer = self._loop.call_at(play.due_s, self._speak, play)

    def _fail(self, play: _Play) -> None:
        if play.fault == "stall":
            return  # it holds its place until the client leaves
        if play.fault == "reset" and play.cut is not None:
            play.cut()
            return
        for index in range(play.request.sampling.n):
            told = "The engine failed on this request."
            failure = Tokens(play.request.request_id, (), "error", index=index, error=told)
            self._engine.dispatch(failure)
        self._end(play.request.request_id)

    def _end(self, request_id: str) -> None:
        play = self._running.pop(request_id, None)
        if play is not None and play.timer is not None:
            play.timer.cancel()
        self._fill()

    def _stats(self) -> Stats:
        used = sum(play.pages for play in self._running.values())
        return Stats(
            running=len(self._running),
            waiting=len(self._waiting),
            pages_total=PAGES,
            pages_free=max(0, PAGES - used),
            pages_cached=0,
            prompt_tokens=self._prompt_tokens,
            cached_prompt_tokens=0,
            generated_tokens=self._said_tokens,
            preemptions=0,
            steps=0,
            step_seconds=0.0,
            step_budget_tokens=0,
        )


def _told(fault: str) -> tuple[int, str, str, str | None, float | None]:
    status, code, message, retry_after_s = _REFUSALS[fault]
    return status, code, message, None, retry_after_s
