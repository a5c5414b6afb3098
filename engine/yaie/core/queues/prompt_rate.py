"""The rate at which prompt tokens arrive, so that the step budget can keep up with it."""

import math


class PromptRate:
    """Prompt tokens per second that arrive and must be computed, averaged over about `window_s`
    seconds.

    Cached tokens need not be computed. Their number is known once a prompt is admitted; for waiting
    prompts, the cached share of recently admitted prompts is assumed.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._arrived = self._admitted = self._computed = 0.0
        self._at_s: float | None = None

    def arrived(self, now: float, tokens: int) -> None:
        """A prompt of `tokens` tokens arrived at `now` (seconds of the caller's clock)."""
        self._decay(now)
        self._arrived += tokens

    def admitted(self, tokens: int, cached: int) -> None:
        """A prompt of `tokens` tokens was admitted; `cached` of them are in the prefix cache."""
        self._admitted += tokens
        self._computed += tokens - cached

    def per_second(self, now: float) -> float:
        """Prompt tokens per second that arrive and must be computed."""
        self._decay(now)
        share = self._computed / self._admitted if self._admitted > 0 else 1.0
        return self._arrived * share / self._window_s

    def _decay(self, now: float) -> None:
        if self._at_s is not None and now > self._at_s:
            kept = math.exp((self._at_s - now) / self._window_s)
            self._arrived *= kept
            self._admitted *= kept
            self._computed *= kept
        self._at_s = now if self._at_s is None else max(now, self._at_s)
