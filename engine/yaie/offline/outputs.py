"""What `LLM` returns. Frozen; names are vLLM's where it has the same thing."""

from dataclasses import dataclass

from yaie.core.messages import FinishReason


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural log-probability of one token at one position. `rank`: 1 for the most likely."""

    logprob: float
    rank: int
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""Of one position, by token id: the token that is there, and the most likely ones."""


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated text. `finish_reason`: stop, length, abort or error.

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


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What became of one prompt. `num_cached_tokens`: prompt tokens found in the prefix cache.

    `prompt_logprobs` has one entry for each token of the prompt; the first is None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    prompt_logprobs: tuple[Logprobs | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """An embedding, of unit length."""

    embedding: list[float]


@dataclass(frozen=True, slots=True)
class ClassificationOutput:
    """Probabilities of a sequence classifier's labels."""

    probs: list[float]


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    """How well two texts go together: a cosine, or a cross-encoder's probability."""

    score: float


@dataclass(frozen=True, slots=True)
class EmbeddingRequestOutput:
    """What became of one input of `LLM.embed`."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: EmbeddingOutput


@dataclass(frozen=True, slots=True)
class ClassificationRequestOutput:
    """What became of one input of `LLM.classify`."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: ClassificationOutput


@dataclass(frozen=True, slots=True)
class ScoringRequestOutput:
    """What became of one pair of `LLM.score`. `prompt_token_ids`: of both texts."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: ScoringOutput
