"""What `LLM` returns. Frozen; names are vLLM's where it has the same thing.

Printed, outputs show their text first, and of long lists the first items and the length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from yaie.core.messages import FinishReason

_SHOWN: Final = 6
"""Items of a list that are printed."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural log-probability of one token at one position. `rank`: 1 for the most likely."""

    logprob: float
    rank: int
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""Of one position, by token id: the token that is there, and the most likely ones."""


@dataclass(frozen=True, slots=True, repr=False)
class CompletionOutput:
    """One generated text. `finish_reason`: stop, length, abort or error.

    Printed: `CompletionOutput(text=' a cat', finish_reason='length', token_ids=(5, 9), index=0)`.

    `stop_reason` is the stop string or the stop token id that ended it; None at EOS or length.
    `logprobs` has one entry for each token, where they were asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    error: str | None = None
    logprobs: tuple[Logprobs, ...] | None = None

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum over the generated tokens; None without log-probabilities."""
        if self.logprobs is None:
            return None
        pairs = zip(self.token_ids, self.logprobs, strict=True)
        return sum(entry[token_id].logprob for token_id, entry in pairs)

    def __repr__(self) -> str:
        shown: dict[str, Any] = {"text": self.text, "finish_reason": self.finish_reason}
        shown |= _given(stop_reason=self.stop_reason, error=self.error)
        shown |= {"token_ids": _Short(self.token_ids), "index": self.index}
        return _told(self, shown | _given(cumulative_logprob=self.cumulative_logprob))


@dataclass(frozen=True, slots=True, repr=False)
class RequestOutput:
    """What became of one prompt. `num_cached_tokens`: prompt tokens found in the prefix cache.

    Printed, `outputs` come first, then the prompt.

    `prompt_logprobs` has one entry for each token of the prompt; the first is None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    prompt_logprobs: tuple[Logprobs | None, ...] | None = None

    def __repr__(self) -> str:
        shown = {
            "outputs": list(self.outputs),
            "prompt": self.prompt,
            "prompt_token_ids": _Short(self.prompt_token_ids),
            "num_cached_tokens": self.num_cached_tokens,
            "request_id": self.request_id,
        }
        return _told(self, shown)


@dataclass(frozen=True, slots=True, repr=False)
class EmbeddingOutput:
    """An embedding, of unit length."""

    embedding: list[float]

    def __repr__(self) -> str:
        return _told(self, {"embedding": _Short(self.embedding)})


@dataclass(frozen=True, slots=True)
class ClassificationOutput:
    """Probabilities of a sequence classifier's labels."""

    probs: list[float]


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    """How well two texts go together: a cosine, or a cross-encoder's probability."""

    score: float


class _Pooled:
    """How outputs that are no text are printed: what was computed first."""

    __slots__ = ()
    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: Any

    def __repr__(self) -> str:
        shown = {
            "outputs": self.outputs,
            "prompt_token_ids": _Short(self.prompt_token_ids),
            "request_id": self.request_id,
        }
        return _told(self, shown)


@dataclass(frozen=True, slots=True, repr=False)
class EmbeddingRequestOutput(_Pooled):
    """What became of one input of `LLM.embed`."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: EmbeddingOutput


@dataclass(frozen=True, slots=True, repr=False)
class ClassificationRequestOutput(_Pooled):
    """What became of one input of `LLM.classify`."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: ClassificationOutput


@dataclass(frozen=True, slots=True, repr=False)
class ScoringRequestOutput(_Pooled):
    """What became of one pair of `LLM.score`. `prompt_token_ids`: of both texts."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: ScoringOutput


class _Short:
    """Prints the beginning of a long list and its length."""

    def __init__(self, items: Sequence[object]) -> None:
        self._items = items

    def __repr__(self) -> str:
        if len(self._items) <= _SHOWN:
            return repr(self._items)
        first = ", ".join(map(repr, self._items[:_SHOWN]))
        return f"({first}, … {len(self._items)} in all)"


def _given(**shown: object) -> dict[str, object]:
    return {name: value for name, value in shown.items() if value is not None}


def _told(output: object, shown: dict[str, Any]) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
    return f"{type(output).__name__}({fields})"
