"""How fast prompts come in, so that the step budget keeps up with them."""

import math


class PromptRate:
    """Prompt tokens a second that have to be computed, mostly of the last `window_s` seconds.

    What the prefix cache holds need not be computed; how much that is, is known of a prompt when it
    is admitted, and assumed of those that wait.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._arrived = self._admitted = self._computed = 0.0
        self._at_s: float | None = None

    def arrived(self, now: float, tokens: int) -> None:
        """A prompt of `tokens` tokens has come by `now` (seconds of the caller's clock)."""
        self._decay(now)
        self._arrived += tokens

    def admitted(self, tokens: int, cached: int) -> None:
        """Of a prompt's tokens so many are cached."""
        self._admitted += tokens
        self._computed += tokens - cached

    def per_second(self, now: float) -> float:
        """Tokens a second that arrive and have to be computed."""
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
