"""What a request took, for its line in the access log: tokens, cached ones, time to first token.

The outermost layer makes the figures of a request; whoever answers adds to them, once per prompt.
"""

import contextvars
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from yaie_api.http.usage_note import TokenUsage


class Stages(msgspec.Struct, frozen=True):
    """When one prompt was where, in seconds of the monotonic clock.

    `queue_s`: how long it waited for its first step, by the engine's own clock. `first_s`,
    `last_s`: the first token of all its outputs, and the last one. None: it did not come so far.
    """

    submitted_s: float
    queue_s: float | None
    first_s: float | None
    last_s: float | None
    finish_reasons: tuple[str, ...]

    @property
    def prefill_s(self) -> float | None:
        if self.queue_s is None or self.first_s is None:
            return None
        return max(0.0, self.first_s - self.submitted_s - self.queue_s)

    @property
    def decode_s(self) -> float | None:
        return None if self.first_s is None or self.last_s is None else self.last_s - self.first_s


@dataclass(slots=True)
class Figures:
    """Sums over the prompts of one request. `ttft_s`: of the first that had a token."""

    prompts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float | None = None
    model: str = ""
    stages: list[Stages] = field(default_factory=list)

    @property
    def usage(self) -> TokenUsage | None:
        """What the router is told; None for a request without a prompt."""
        if not self.prompts:
            return None
        return TokenUsage(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

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
    stages: Stages | None = None,
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
    if stages is not None:
        figures.stages.append(stages)


def note_model(name: str) -> None:
    """Keep the name of the model that the current request asks for."""
    if (figures := current.get()) is not None:
        figures.model = name
