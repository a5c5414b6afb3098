"""One generation as text: tokens from the engine through the text stream, with its measurements.

Chat and completions, streamed or not, all consume an `Answer`; they differ only in how they write
it down.
"""

import time
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from typing import Literal

from yaie.core.messages import Tokens
from yaie.server.client import Generation
from yaie.server.metrics import ServerMetrics
from yaie.text import TextStream
from yaie_api.errors import EngineError, UnavailableError
from yaie_api.openai import Usage

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of an answer; the last one has a finish_reason."""

    text: str
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


class Answer:
    """The text of one accepted generation. Iterate `deltas` once; `usage` grows with it.

    `stop_token_ids`: those that the client asked for, which are named as the reason of a stop.
    `record` is given the whole text at the end, if the user wants outputs logged.
    """

    def __init__(
        self,
        generation: Generation,
        text: TextStream,
        *,
        prompt_tokens: int,
        metrics: ServerMetrics,
        started_s: float,
        stop_token_ids: Collection[int] = (),
        record: Callable[[str], None] | None = None,
    ) -> None:
        self._generation = generation
        self._text = text
        self._prompt_tokens = prompt_tokens
        self._metrics = metrics
        self._started_s = started_s
        self._stop_token_ids = frozenset(stop_token_ids)
        self._record = record
        self._shown: list[str] = []
        self._last_s: float | None = None
        self._cached_tokens = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._text.num_tokens,
            cached_tokens=self._cached_tokens,
        )

    def close(self) -> None:
        """No more text is wanted. Aborts the generation unless it has ended."""
        self._generation.close()

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Text as it comes. Deltas without text are left out, except the last one.

        Raises:
            EngineError: the engine failed on this request.
            UnavailableError: the engine died or gave the request up.

        """
        outcome = "abort"
        try:
            async for tokens in self._generation:
                delta = self._advance(tokens)
                if delta.finish_reason is not None:
                    outcome = delta.finish_reason
                if self._record is not None:
                    self._shown.append(delta.text)
                if delta.text or delta.finish_reason:
                    yield delta
                if delta.finish_reason is not None:
                    return
        except (EngineError, UnavailableError):
            outcome = "error"
            raise
        finally:
            self._generation.close()
            self._metrics.finished(outcome, time.monotonic() - self._started_s)
            if self._record is not None:
                self._record("".join(self._shown))

    async def whole(self) -> Delta:
        """All text in one delta."""
        parts: list[str] = []
        last = Delta("")
        async for delta in self.deltas():
            parts.append(delta.text)
            last = delta
        return Delta("".join(parts), last.finish_reason, last.stop_reason)

    def _advance(self, tokens: Tokens) -> Delta:
        if tokens.finish_reason == "error":
            raise EngineError(tokens.error or "The engine failed on this request.")
        if tokens.finish_reason == "abort":
            raise UnavailableError("The engine gave this request up.", retry_after_s=1.0)
        self._measure(tokens)
        text = self._text.push(tokens.token_ids, stop_token_id=tokens.stop_token_id)
        if tokens.finish_reason is not None:
            text += self._text.finish()
        if self._text.stopped:
            return Delta(text, "stop", self._text.stop_reason)
        named = tokens.stop_token_id if tokens.stop_token_id in self._stop_token_ids else None
        return Delta(text, tokens.finish_reason, named)

    def _measure(self, tokens: Tokens) -> None:
        self._cached_tokens = max(self._cached_tokens, tokens.cached_tokens)
        if not tokens.token_ids:
            return
        now = time.monotonic()
        if self._last_s is None:
            self._metrics.first_token(now - self._started_s)
        else:
            self._metrics.more_tokens(now - self._last_s, len(tokens.token_ids))
        self._last_s = now
