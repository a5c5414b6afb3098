"""What a user asks of one generation: sampling parameters, validated once, frozen afterwards."""

import math

import msgspec

from yaie_api.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_TOP_K = 2**31 - 1
"""Devices hold it in 32 bits; no vocabulary comes near."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to pick tokens and when to stop. Names, ranges and defaults follow vLLM.

    Attributes:
        temperature: 0 is exact greedy; otherwise logits are divided by it. Finite, 0..2.
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        top_p: keep the smallest set of most likely tokens whose probability reaches it. (0, 1].
        min_p: drop tokens less likely than `min_p` times the most likely one. [0, 1].
        seed: same seed and same logits give the same tokens, whatever the batch. None: random.
        max_tokens: most tokens to generate; None: as many as the context holds.
        min_tokens: EOS and stop token ids cannot end the output before this many tokens.
        stop: strings that end the output (a single string is accepted too).
        stop_token_ids: token ids that end the output.
        include_stop_str_in_output: keep the stop string that was met in the text.
        ignore_eos: do not stop at the model's end-of-sequence tokens.
        skip_special_tokens: leave special tokens out of the text.

    Raises:
        InvalidRequestError: a value is out of range; `param` names the field.

    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        _normalise_sequences(self)
        _check_range("temperature", self.temperature, 0.0, 2.0)
        _check_range("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_integer("top_k", self.top_k, low=-1, high=MAX_TOP_K)
        _check_integer("min_tokens", self.min_tokens, low=0)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, low=1)
            if self.min_tokens > self.max_tokens:
                raise InvalidRequestError(
                    f"min_tokens ({self.min_tokens}) must not exceed max_tokens "
                    f"({self.max_tokens}).",
                    param="min_tokens",
                )
        if self.seed is not None:
            _check_integer("seed", self.seed, low=-(2**63), high=2**63 - 1)
        _check_stop(self.stop)
        for token_id in self.stop_token_ids:
            _check_integer("stop_token_ids", token_id, low=0)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0


def _normalise_sequences(params: SamplingParams) -> None:
    stop: object = params.stop
    if isinstance(stop, str):
        stop = (stop,)
    try:
        msgspec.structs.force_setattr(params, "stop", tuple(stop or ()))  # type: ignore[arg-type]
        ids = tuple(params.stop_token_ids or ())
    except TypeError as error:
        raise InvalidRequestError("stop must be a string or a list of strings.") from error
    msgspec.structs.force_setattr(params, "stop_token_ids", ids)


def _check_stop(stop: tuple[str, ...]) -> None:
    if len(stop) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"stop has {len(stop)} strings; at most {MAX_STOP_STRINGS} are allowed.", param="stop"
        )
    texts: tuple[object, ...] = stop
    for text in texts:
        if not isinstance(text, str) or not text:
            raise InvalidRequestError("stop must hold non-empty strings.", param="stop")
        if len(text) > MAX_STOP_LENGTH:
            raise InvalidRequestError(
                f"a stop string has {len(text)} characters; at most {MAX_STOP_LENGTH} are allowed.",
                param="stop",
            )


def _check_range(
    name: str, value: object, low: float, high: float, *, open_low: bool = False
) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        above = low < value if open_low else low <= value
        if above and value <= high:
            return
    bracket = "(" if open_low else "["
    raise InvalidRequestError(
        f"{name} must be a number in {bracket}{low:g}, {high:g}], got {value!r}.", param=name
    )


def _check_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= low
        and (high is None or value <= high)
    ):
        return
    wanted = f"at least {low}" if high is None else f"between {low} and {high}"
    raise InvalidRequestError(f"{name} must be an integer, {wanted}; got {value!r}.", param=name)
