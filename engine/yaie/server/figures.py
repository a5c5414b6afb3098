"""What a request took, for its line in the access log: tokens, cached ones, time to first token.

The outermost layer makes the figures of a request; whoever answers adds to them, once per prompt.
"""

import contextvars
from dataclasses import dataclass
from typing import Any, Final


@dataclass(slots=True)
class Figures:
    """Sums over the prompts of one request. `ttft_s`: of the first that had a token."""

    prompts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float | None = None

    def as_fields(self) -> dict[str, Any]:
        """The keys of the log line; none for a request without a prompt."""
        if not self.prompts:
            return {}
        found: dict[str, Any] = {
            "tokens_in": self.prompt_tokens,
            "tokens_out": self.completion_tokens,
            "cached": self.cached_tokens,
        }
        if self.ttft_s is not None:
            found["ttft"] = round(self.ttft_s, 4)
        return found


current: Final[contextvars.ContextVar[Figures | None]] = contextvars.ContextVar(
    "figures", default=None
)
"""The figures of the request that the current task serves; None outside requests."""


def note(
    *,
    prompt_tokens: int,
    completion_tokens: int = 0,
    cached_tokens: int = 0,
    ttft_s: float | None = None,
) -> None:
    """Add what one prompt took to the figures of the current request, if there is one."""
    figures = current.get()
    if figures is None:
        return
    figures.prompts += 1
    figures.prompt_tokens += prompt_tokens
    figures.completion_tokens += completion_tokens
    figures.cached_tokens += cached_tokens
    if figures.ttft_s is None:
        figures.ttft_s = ttft_s
