"""Vocabularies, matchers and walks for the tests of grammars."""

# ruff: noqa: RUF001 - a family of models writes its tags with fullwidth bars

import functools
import random
from collections.abc import Iterable

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer

from yaie.checkpoint.source import BUILTIN
from yaie.core.request import Grammar
from yaie.runtime.grammar import build as grammar_build

DEMO = BUILTIN / "yaie-demo"
EOS = (2, 0)
PADDING = 100
"""Rows of the model's output beyond the tokenizer's last token."""
TAGS = (
    "[TOOL_CALLS]",
    "[ARGS]",
    "[THINK]",
    "[/THINK]",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
PLAIN_TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Added tokens that tokenizers do not call special."""


@functools.cache
def demo() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


@functools.cache
def tagged() -> Tokenizer:
    """The demo's vocabulary with a token for each tag of each tool format."""
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(tag, special=True) for tag in TAGS])
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in PLAIN_TAGS])
    return tokenizer


def native(tokenizer: Tokenizer) -> LLTokenizer:
    size = tokenizer.get_vocab_size() + PADDING
    return LLTokenizer(tokenizer.to_str(), n_vocab=size, eos_token=list(EOS))


@functools.cache
def native_demo() -> LLTokenizer:
    return native(demo())


@functools.cache
def native_tagged() -> LLTokenizer:
    return native(tagged())


def build(grammar: Grammar, vocabulary: LLTokenizer | None = None) -> LLMatcher:
    return grammar_build.build(vocabulary or native_demo(), grammar)


def allowed(matcher: LLMatcher, vocab_size: int) -> list[int]:
    words = np.zeros((1, -(-vocab_size // 32)), np.int32)
    llguidance.numpy.fill_next_token_bitmask(matcher, words, 0)
    bits = np.unpackbits(words[0].view(np.uint8), bitorder="little")
    assert not bits[vocab_size:].any()
    return [int(token_id) for token_id in np.flatnonzero(bits)]


def accepts(matcher: LLMatcher, ids: Iterable[int]) -> bool:
    """Whether these tokens, and then the end, are allowed from here."""
    copy, token_ids = matcher.deep_copy(), list(ids)
    return copy.try_consume_tokens(token_ids) == len(token_ids) and copy.is_accepting()


def accepts_text(matcher: LLMatcher, text: str, tokenizer: Tokenizer | None = None) -> bool:
    encoded = (tokenizer or demo()).encode(text, add_special_tokens=False)
    return accepts(matcher, encoded.ids)


def walk(
    matcher: LLMatcher,
    tokenizer: Tokenizer,
    rng: random.Random,
    *,
    start: str = "",
    limit: int = 400,
) -> str | None:
    """Text of random allowed tokens, with a liking for those that end things; None when the
    grammar had not ended after `limit` of them.
    """
    matcher = matcher.deep_copy()
    size = tokenizer.get_vocab_size() + PADDING
    liked = _closing(tokenizer)
    ids = tokenizer.encode(start, add_special_tokens=False).ids
    assert matcher.consume_tokens(ids)
    while not matcher.is_stopped():
        if len(ids) > limit:
            return None
        options = allowed(matcher, size)
        assert options, matcher.get_error()
        closing = [token_id for token_id in options if token_id in liked]
        token_id = rng.choice(closing if closing and rng.random() < 0.6 else options)
        assert matcher.consume_token(token_id)
        ids.append(token_id)
    ids = [token_id for token_id in ids if token_id not in EOS]
    return str(tokenizer.decode(ids, skip_special_tokens=False))


@functools.cache
def _closing(tokenizer: Tokenizer) -> frozenset[int]:
    ends = ['"', "}", "]", '"}', "</think>", "[/THINK]", *TAGS, *PLAIN_TAGS]
    return frozenset({*EOS, *filter(None, map(tokenizer.token_to_id, ends))})
