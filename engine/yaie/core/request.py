"""Sampling parameters of a request: validated when they are created, then frozen."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from yaie.core.checks import check_integer, check_range, check_strings
from yaie_api.errors import InvalidRequestError

MAX_N = 128
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_BAD_WORDS = 128
MAX_BAD_WORD_TOKENS = 32
MAX_LOGIT_BIASES = 1024
MAX_LOGIT_BIAS = 100.0
MAX_TOP_K = 2**31 - 1
"""Devices store top_k in 32 bits; every vocabulary is far smaller."""
MAX_PENALTY = 1e4
"""Upper bound of repetition_penalty; its inverse is the lower bound. Useful values are far inside
these bounds, and so no logit becomes infinite.
"""

GrammarKind = Literal["json_schema", "regex", "lark"]


class ReasoningBlock(msgspec.Struct, frozen=True):
    """Free text (reasoning) that may come before the constrained output, from `start` to `end`.
    `opened`: the prompt ends with `start`, so the output begins inside the block.
    """

    start: str
    end: str
    opened: bool


class Grammar(msgspec.Struct, frozen=True):
    """The structure that the output must have. `text`: a JSON schema, a regular expression, or a
    grammar in llguidance's dialect of Lark. Other constraints (choices, EBNF, tool calls,
    `json_object`) are converted to one of these before.

    `param`: the request's field that holds the constraint, for error messages. `markers`: strings
    that are special tokens in some vocabularies and plain text in others. A Lark text refers to
    marker i as `marker_i`, to any text that ends with it as `until_i` (`text_until_i` next to other
    patterns), and to free text as `free_text`, which excludes marker 0 if that is a special token.
    `after`: the reasoning block that may come first.
    """

    kind: GrammarKind
    text: str
    param: str = "structured_outputs"
    markers: tuple[str, ...] = ()
    after: ReasoningBlock | None = None


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to pick tokens and when to stop. Names, ranges and defaults follow vLLM.

    Logits are changed and filtered in this order: allowed ids, bad words, min_tokens, grammar,
    repetition penalty, frequency and presence penalty, logit bias, temperature, top-k, top-p,
    min-p.

    Attributes:
        n: number of outputs; output i uses the seed `seed + i`.
        temperature: 0 is exact greedy; otherwise logits are divided by it. Finite, 0..2.
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        top_p: keep the smallest set of most likely tokens whose probability reaches it. (0, 1].
        min_p: drop tokens less likely than `min_p` times the most likely one. [0, 1].
        repetition_penalty: positive logits of tokens in prompt or output are divided by it,
            negative ones multiplied (Keskar et al. 2019, arXiv 1909.05858). [0.0001, 10000]; 1 is
            off.
        presence_penalty: subtracted from the logits of tokens in the output. [-2, 2].
        frequency_penalty: subtracted once for each time a token is in the output. [-2, 2].
        logit_bias: added to the logits of these ids, each clamped to [-100, 100]. A mapping of id
            to bias, or pairs.
        bad_words: strings whose tokens the output may not contain in sequence.
        bad_words_ids: the same as ids; the caller that has the tokenizer makes them from
            `bad_words`.
        allowed_token_ids: only these ids may be generated.
        seed: same seed and same logits give the same tokens, whatever the batch. None: random.
        max_tokens: maximum number of tokens to generate; 0: only compute the prompt; None: as many
            as the context allows.
        min_tokens: EOS and stop token ids are not generated before this many tokens.
        stop: strings that end the output (a single string is accepted too).
        stop_token_ids: token ids that end the output.
        include_stop_str_in_output: keep the stop string that ended the output in its text.
        ignore_eos: do not stop at the model's end-of-sequence tokens.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: report the log-probability of each output token and of this many most likely
            tokens, from the model's logits before any parameter changes them. -1: all tokens. None:
            do not report.
        prompt_logprobs: the same for the prompt's tokens, except the first.
        grammar: the structure that the output must have.

    Raises:
        InvalidRequestError: a value is out of range; `param` names the field.

    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _normalise(self)
        _check_distribution(self)
        _check_penalties(self)
        _check_token_lists(self)
        _check_length(self)
        _check_types(self)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def penalized(self) -> bool:
        """Whether earlier tokens change the logits."""
        return bool(
            self.repetition_penalty != 1.0 or self.presence_penalty or self.frequency_penalty
        )


def _normalise(params: SamplingParams) -> None:
    """Convert every list and mapping to tuples."""
    stop: Any = params.stop
    biases: Any = params.logit_bias or ()
    pairs = biases.items() if isinstance(biases, Mapping) else biases
    _set(params, "stop", (stop,) if isinstance(stop, str) else stop or ())
    _set(params, "stop_token_ids", params.stop_token_ids or ())
    _set(params, "bad_words", params.bad_words or ())
    _set(params, "bad_words_ids", params.bad_words_ids or (), each=tuple)
    _set(params, "logit_bias", pairs, each=tuple)
    if params.allowed_token_ids is not None:
        _set(params, "allowed_token_ids", params.allowed_token_ids)


def _set(
    params: SamplingParams,
    name: str,
    values: Iterable[Any],
    each: Callable[[Any], Any] | None = None,
) -> None:
    try:
        found = tuple(values) if each is None else tuple(map(each, values))
        msgspec.structs.force_setattr(params, name, found)
    except TypeError as error:
        raise InvalidRequestError(f"{name} must be a list.", param=name) from error


def _check_distribution(params: SamplingParams) -> None:
    check_range("temperature", params.temperature, 0.0, 2.0)
    check_range("top_p", params.top_p, 0.0, 1.0, open_low=True)
    check_range("min_p", params.min_p, 0.0, 1.0)
    check_integer("top_k", params.top_k, low=-1, high=MAX_TOP_K)
    check_integer("n", params.n, low=1, high=MAX_N)
    if params.seed is not None:
        check_integer("seed", params.seed, low=-(2**63), high=2**63 - 1)
    for name in ("logprobs", "prompt_logprobs"):
        if (value := getattr(params, name)) is not None:
            check_integer(name, value, low=-1)


def _check_penalties(params: SamplingParams) -> None:
    check_range("repetition_penalty", params.repetition_penalty, 1 / MAX_PENALTY, MAX_PENALTY)
    check_range("presence_penalty", params.presence_penalty, -2.0, 2.0)
    check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0)


def _check_token_lists(params: SamplingParams) -> None:
    check_strings("stop", params.stop, count=MAX_STOP_STRINGS, length=MAX_STOP_LENGTH)
    check_strings("bad_words", params.bad_words, count=MAX_BAD_WORDS, length=MAX_STOP_LENGTH)
    for token_id in params.stop_token_ids:
        check_integer("stop_token_ids", token_id, low=0)
    if len(params.bad_words_ids) > 2 * MAX_BAD_WORDS:
        raise InvalidRequestError("bad_words_ids has too many entries.", param="bad_words")
    for word in params.bad_words_ids:
        if not 1 <= len(word) <= MAX_BAD_WORD_TOKENS:
            raise InvalidRequestError(
                f"a bad word has {len(word)} tokens; 1 to {MAX_BAD_WORD_TOKENS} are allowed.",
                param="bad_words",
            )
        for token_id in word:
            check_integer("bad_words_ids", token_id, low=0)
    if params.allowed_token_ids is not None:
        if not params.allowed_token_ids:
            raise InvalidRequestError(
                "allowed_token_ids must not be empty.", param="allowed_token_ids"
            )
        for token_id in params.allowed_token_ids:
            check_integer("allowed_token_ids", token_id, low=0)
    _check_biases(params)


def _check_biases(params: SamplingParams) -> None:
    if len(params.logit_bias) > MAX_LOGIT_BIASES:
        raise InvalidRequestError(
            f"logit_bias has {len(params.logit_bias)} entries; at most {MAX_LOGIT_BIASES} are "
            "allowed.",
            param="logit_bias",
        )
    for pair in params.logit_bias:
        if len(pair) != 2:
            raise InvalidRequestError("logit_bias maps token ids to numbers.", param="logit_bias")
        check_integer("logit_bias", pair[0], low=0)
        check_range("logit_bias", pair[1], float("-1e9"), 1e9)
    limit = MAX_LOGIT_BIAS
    clamped = ((token, min(max(float(b), -limit), limit)) for token, b in params.logit_bias)
    _set(params, "logit_bias", clamped)


def _check_length(params: SamplingParams) -> None:
    check_integer("min_tokens", params.min_tokens, low=0)
    if params.max_tokens is None:
        return
    check_integer("max_tokens", params.max_tokens, low=0)
    if params.min_tokens > params.max_tokens:
        raise InvalidRequestError(
            f"min_tokens ({params.min_tokens}) must not exceed max_tokens ({params.max_tokens}).",
            param="min_tokens",
        )


def _check_types(params: SamplingParams) -> None:
    for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
        if not isinstance(getattr(params, name), bool):
            raise InvalidRequestError(f"{name} must be true or false.", param=name)
    if not isinstance(params.grammar, Grammar | None):
        raise InvalidRequestError("grammar must be a Grammar.", param="grammar")
