"""Llama and Qwen3 against transformers: logits within the ratio gate, greedy tokens identical."""

from pathlib import Path

import pytest

from engine.models.hand import Hand, load_runner
from engine.models.oracle import VARIANTS, Reference, assert_within_gate, reference, save
from yaie.runtime.runner import ModelRunner

DECODES = 63


@pytest.fixture(scope="module", params=sorted(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def runner(variant: str, tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    folder: Path = tmp_path_factory.mktemp(variant)
    return load_runner(save(variant, folder), pages=128)


def check(hand: Hand, seq: int, expected: Reference) -> None:
    assert tuple(hand.tokens[seq]) == expected.prompt + expected.greedy
    assert_within_gate(hand.logits[seq], expected)


@pytest.mark.parametrize("length", [1, 16, 37])
def test_prefill_and_decode_match(variant: str, runner: ModelRunner, length: int) -> None:
    expected = reference(variant, length)
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    hand.step({0: length})
    hand.decode(0, steps=DECODES)
    check(hand, 0, expected)


def test_a_prompt_in_uneven_chunks_matches(variant: str, runner: ModelRunner) -> None:
    expected = reference(variant, 37)
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    for chunk in (1, 15, 2, 18, 1):
        hand.step({0: chunk})
    hand.decode(0, steps=DECODES)
    check(hand, 0, expected)


def test_batches_that_mix_decodes_and_chunks_match(variant: str, runner: ModelRunner) -> None:
    """Sequences of three lengths; two arrive in chunks while the first decodes."""
    expected = [reference(variant, length) for length in (16, 37, 1)]
    hand = Hand(runner)
    for seq, one in enumerate(expected):
        hand.start(seq, one.prompt)
    hand.step({0: 16})
    hand.step({0: 1, 1: 20})
    hand.step({1: 17, 0: 1, 2: 1})
    hand.decode(2, 0, 1, steps=DECODES - 2)
    hand.decode(1, 2, steps=2)
    for seq, one in enumerate(expected):
        check(hand, seq, one)


def test_a_prefix_hit_matches(variant: str, runner: ModelRunner) -> None:
    """The second sequence starts on the first one's pages and computes its own tail only."""
    first, second = (reference(variant, 37, seed=seed, shared=33) for seed in (1, 2))
    hand = Hand(runner)
    hand.start(0, first.prompt)
    hand.step({0: 37})
    hand.start(1, second.prompt, shared_pages=hand.pages[0][:2])
    hand.step({1: 5, 0: 1})
    hand.decode(0, 1, steps=DECODES - 1)
    hand.decode(1)
    check(hand, 0, first)
    check(hand, 1, second)


def test_recomputing_after_preemption_matches(variant: str, runner: ModelRunner) -> None:
    """After 20 tokens the sequence loses its pages and starts over with all it has."""
    expected = reference(variant, 16)
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    hand.step({0: 16})
    hand.decode(0, steps=20)
    kept, logits = hand.tokens[0], hand.logits[0]
    hand.start(0, kept)
    hand.step({0: len(kept)})
    hand.decode(0, steps=DECODES - 21)
    hand.logits[0] = logits | hand.logits[0]
    check(hand, 0, expected)
