"""How long an engine may let a request wait: for a first token, for the next one, for an answer."""

from dataclasses import dataclass, replace
from typing import Final

from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.health.watchdog import Wait

LONGEST_S: Final = 300.0
"""No stream waits longer for a token, however long its prompt and however busy its engine."""


@dataclass(frozen=True)
class Deadlines:
    """Durations in seconds.

    `first_token_s`: of a stream, and one second more for each `prompt_bytes_per_s` bytes of its
    request. `inter_token_s`: between tokens. `silence_s`: of an answer that is no stream, for a
    model without `spec.routing.timeoutSeconds`. That field is never exceeded.
    """

    first_token_s: float = 30.0
    inter_token_s: float = 30.0
    prompt_bytes_per_s: float = 8192.0
    silence_s: float = 600.0

    @property
    def hold_s(self) -> float:
        """How long a stream's head may be held back: below the 60 s after which proxies give up."""
        return 1.5 * self.first_token_s

    def first_wait(
        self, model: Model, endpoint: Endpoint, *, streams: bool, size: int, is_bound: bool
    ) -> Wait:
        """Make the wait for the first token or, if the request does not stream, for the answer.

        `size`: of the request's body in bytes. `is_bound`: no other engine can answer.
        """
        silence_s = model.timeout_s or self.silence_s
        if not streams:
            return Wait(model.name, endpoint, silence_s, silence_s, is_committed=is_bound)
        most_s = min(silence_s, LONGEST_S)
        limit_s = min(most_s, self.first_token_s + size / self.prompt_bytes_per_s)
        return Wait(model.name, endpoint, limit_s, most_s, is_committed=is_bound)

    def next_wait(self, first: Wait, *, is_events: bool, has_tokens: bool) -> Wait:
        """Make the wait for the rest of an answer that has begun.

        `first`: the wait for its beginning. It goes on where the first token has not come yet.
        """
        if is_events and not has_tokens:
            return replace(first, is_committed=True, task=None)
        limit_s = min(first.most_s, self.inter_token_s) if is_events else first.most_s
        return Wait(first.model, first.endpoint, limit_s, first.most_s, is_committed=True)
