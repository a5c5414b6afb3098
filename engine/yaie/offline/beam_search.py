"""Beam search: the most likely continuations of a prompt, by the engine's own log-probabilities.

`Search` decides which beams go on, and knows nothing of how they are computed
(`yaie.offline.beam_runner`). The rules are those of transformers' `num_beams` with
`early_stopping="never"`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from yaie.config import ModelInfo
from yaie.core.checks import check_integer, check_range
from yaie.core.messages import FinishReason
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.errors import ContextLengthError, InvalidRequestError

MAX_BEAMS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How to search. Names and defaults are vLLM's.

    Attributes:
        beam_width: how many continuations are kept, and returned.
        max_tokens: most tokens of a continuation.
        ignore_eos: go on after the model's end-of-sequence tokens.
        temperature: 0 or 1; the model's own probabilities are searched.
        length_penalty: a continuation's score is the sum of its log-probabilities, divided by its
            number of tokens to this power: above 0 favours long ones, below 0 short ones.
        include_stop_str_in_output: keep the end-of-sequence token in `text`.

    Raises:
        InvalidRequestError: a value is out of range; `param` names the field.

    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        check_integer("beam_width", self.beam_width, low=1, high=MAX_BEAMS)
        check_integer("max_tokens", self.max_tokens, low=1)
        check_range("length_penalty", self.length_penalty, -10.0, 10.0)
        if self.temperature not in (0, 1):
            raise InvalidRequestError(
                "temperature must be 0: beam search takes the most likely tokens.",
                param="temperature",
            )
        for name in ("ignore_eos", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequestError(f"{name} must be true or false.", param=name)


@dataclass(frozen=True, slots=True)
class Beam:
    """A continuation. `cum_logprob`: sum over its tokens. `ended`: its last token is an EOS."""

    token_ids: tuple[int, ...] = ()
    cum_logprob: float = 0.0
    ended: bool = False

    def score(self, length_penalty: float) -> float:
        """What continuations are compared by."""
        return float(self.cum_logprob / len(self.token_ids) ** length_penalty)


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One continuation, as vLLM returns it. `print` shows its text first.

    Attributes:
        text: of prompt and continuation, without special tokens; empty without a tokenizer.
        tokens: the prompt's and the continuation's, with the EOS that ended it.
        cum_logprob: sum of the log-probabilities of the continuation's tokens.
        score: what the sequences are sorted by, highest first; see `length_penalty`.
        finish_reason: stop at an EOS, otherwise length.

    """

    text: str
    cum_logprob: float
    score: float
    finish_reason: FinishReason
    tokens: list[int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The best continuations of one prompt, the best one first."""

    sequences: list[BeamSearchSequence]


class Search:
    """The search from one prompt.

    Attributes:
        prompt: its token ids.
        running: beams that need their next token, the most likely one first; none: it is over.
        n_logprobs: most likely tokens that a step has to know of each beam: as many as the width,
            and all that may end one.

    Raises:
        ContextLengthError: the prompt and the wanted tokens are longer than the model's context.
        InvalidRequestError: the width needs more log-probabilities than the model allows.

    """

    def __init__(self, prompt: tuple[int, ...], params: BeamSearchParams, info: ModelInfo) -> None:
        self.prompt = prompt
        self.running = [Beam()]
        self._params = params
        self._eos = frozenset() if params.ignore_eos else frozenset(info.eos_token_ids)
        self.n_logprobs = params.beam_width + len(self._eos)
        self._finished: list[Beam] = []
        if len(prompt) + params.max_tokens > info.max_model_len:
            raise ContextLengthError(info.max_model_len, len(prompt), params.max_tokens)
        if info.max_logprobs != -1 and self.n_logprobs > info.max_logprobs:
            raise InvalidRequestError(
                f"beam_width {params.beam_width} needs {self.n_logprobs} log-probabilities of each "
                f"token; the model was loaded with max_logprobs={info.max_logprobs}.",
                param="beam_width",
            )

    def advance(self, logprobs: Sequence[Mapping[int, float]]) -> None:
        """Take one step. `logprobs`: for each running beam, the log-probabilities of its most
        likely next tokens by id.
        """
        width = self._params.beam_width
        grown = [
            Beam((*beam.token_ids, token), beam.cum_logprob + logprob, token in self._eos)
            for beam, found in zip(self.running, logprobs, strict=True)
            for token, logprob in found.items()
        ]
        grown.sort(key=lambda beam: beam.cum_logprob, reverse=True)
        last = len(grown[0].token_ids) == self._params.max_tokens
        self._finish([beam for beam in grown[:width] if last or beam.ended])
        going = [] if last else [beam for beam in grown if not beam.ended][:width]
        self.running = going if self._can_improve(going) else []

    def sequences(self, tokenizer: Tokenizer | None) -> list[BeamSearchSequence]:
        """The best continuations, the best one first."""
        return [
            BeamSearchSequence(
                text="" if tokenizer is None else self._text(beam, tokenizer),
                cum_logprob=beam.cum_logprob,
                score=beam.score(self._params.length_penalty),
                finish_reason="stop" if beam.ended else "length",
                tokens=[*self.prompt, *beam.token_ids],
            )
            for beam in self._finished
        ]

    def _text(self, beam: Beam, tokenizer: Tokenizer) -> str:
        """The text without special tokens, but for an EOS that is wanted."""
        if not beam.ended:
            return tokenizer.decode([*self.prompt, *beam.token_ids])
        *said, end = beam.token_ids
        text = tokenizer.decode([*self.prompt, *said])
        if not self._params.include_stop_str_in_output:
            return text
        return text + tokenizer.decode([end], skip_special_tokens=False)

    def _finish(self, beams: Sequence[Beam]) -> None:
        ranked = [*self._finished, *beams]
        ranked.sort(key=lambda beam: beam.score(self._params.length_penalty), reverse=True)
        self._finished = ranked[: self._params.beam_width]

    def _can_improve(self, going: Sequence[Beam]) -> bool:
        """Whether what goes on can still be better than the worst that is finished."""
        if len(self._finished) < self._params.beam_width or not going:
            return bool(going)
        penalty = self._params.length_penalty
        longest = self._params.max_tokens if penalty > 0 else len(going[0].token_ids)
        bound = going[0].cum_logprob / longest**penalty
        return bool(bound > self._finished[-1].score(penalty))
