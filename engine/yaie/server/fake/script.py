"""How a fake engine behaves: its times, and which of its requests fail in which way. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

KINDS: Final = {
    "5xx": "answer 500",
    "429": "answer 429 with Retry-After",
    "503": "answer 503 with Retry-After",
    "hang": "answer nothing for two minutes",
    "heartbeats": "begin, and then send comments only",
    "stall": "stop after two tokens",
    "error": "end with an error event after two tokens",
    "reset": "cut the connection after two tokens",
}
AFTER_TOKENS: Final = 2


@dataclass(frozen=True)
class Fault:
    """A share of the requests that fail in one way."""

    kind: str
    share: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read KIND:SHARE, such as 5xx:0.01; KIND alone means every request.

        Raises:
            ValueError: there is no such kind, or the share is none.

        """
        kind, colon, number = text.partition(":")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of failure: write one of {', '.join(KINDS)}")
        try:
            share = float(number) if colon else 1.0
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ValueError(
                f"{number!r} is no share: write a number from 0 to 1, as in {kind}:0.1"
            )
        return cls(kind, share)


@dataclass(frozen=True, kw_only=True)
class Script:
    """Durations in seconds.

    Attributes:
        ttft_s: from a request's first step to its first token.
        itl_s: between two tokens.
        output_tokens: length of an answer, if the client does not ask for less.
        max_num_seqs: requests that are answered at a time; the others wait in a queue.
        faults: shares that together are at most 1.

    """

    ttft_s: float = 0.05
    itl_s: float = 0.01
    output_tokens: int = 64
    max_num_seqs: int = 256
    faults: tuple[Fault, ...] = ()

    def fault_at(self, draw: float) -> str | None:
        """Return the kind of failure for a number drawn from [0, 1); None: the request succeeds."""
        for fault in self.faults:
            if draw < fault.share:
                return fault.kind
            draw -= fault.share
        return None


def faults_of(words: Sequence[str]) -> tuple[Fault, ...]:
    """Read several faults.

    Raises:
        ValueError: one is wrong, or they are more than all requests together.

    """
    faults = tuple(Fault.parse(word) for word in words)
    if sum(fault.share for fault in faults) > 1 + 1e-9:
        raise ValueError("the shares of failures are more than 1 together")
    return faults
