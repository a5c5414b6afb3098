"""One run of a model that takes six sequences through all that a scheduler does to sequences.

Prefills of several lengths, a prompt in uneven chunks beside decodes, a prefix hit, and a sequence
that loses its pages and starts over. All of them end with 64 greedy tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.models.hand import GREEDY, Hand
from engine.models.oracle import GREEDY_TOKENS, prompt
from yaie.core.request import SamplingParams
from yaie.runtime.worker.runner import ModelRunner

PAGES = 128
SEQUENCES = ("prefill", "one token", "chunks", "mixed", "prefix hit", "preempted")
CHUNKS = (1, 15, 2, 18, 1)


@dataclass(frozen=True)
class Traveller:
    """A sequence at its end. `logits[p]` predicted its token at position p."""

    start: tuple[int, ...]
    ids: tuple[int, ...]
    logits: dict[int, torch.Tensor]


def travel(
    variant: str, runner: ModelRunner, *, sampling: SamplingParams = GREEDY
) -> dict[str, Traveller]:
    """Run all sequences; `runner` has pages of 16 tokens, at least PAGES of them, and 8 slots."""
    starts = {
        "prefill": prompt(variant, 37, seed=1, shared=33),
        "one token": prompt(variant, 1, seed=2),
        "chunks": prompt(variant, sum(CHUNKS), seed=3),
        "mixed": prompt(variant, 20, seed=4),
        "prefix hit": prompt(variant, 37, seed=5, shared=33),
        "preempted": prompt(variant, 16, seed=6),
    }
    hand = Hand(runner, sampling)
    number = {name: i for i, name in enumerate(SEQUENCES)}
    _begin(hand, number, starts)
    _decode_until(hand, number["preempted"], grown=20)
    _start_over(hand, number["preempted"])
    for _ in range(GREEDY_TOKENS):
        unfinished = [seq for seq in hand.tokens if _grown(hand, starts, seq) < GREEDY_TOKENS]
        if unfinished:
            hand.decode(*unfinished)
    return {
        name: Traveller(starts[name], tuple(hand.tokens[seq]), hand.logits[seq])
        for name, seq in number.items()
    }


def _begin(hand: Hand, number: dict[str, int], starts: dict[str, tuple[int, ...]]) -> None:
    """Two prefills; then chunks of a third prompt beside decodes and further arrivals."""
    whole, one, chunked, mixed, hit, preempted = number.values()
    for name in ("prefill", "one token", "chunks", "mixed", "preempted"):
        hand.start(number[name], starts[name])
    hand.step({whole: 37, one: 1})
    arrivals: Sequence[dict[int, int]] = ({}, {mixed: 20}, {preempted: 16}, {}, {})
    running = [whole, one]
    for chunk, arrival in zip(CHUNKS, arrivals, strict=True):
        hand.step(dict.fromkeys(running, 1) | {chunked: chunk} | arrival)
        running.extend(arrival)
    running.append(chunked)
    hand.start(hit, starts["prefix hit"], shared_pages=hand.pages[whole][:2])
    hand.step(dict.fromkeys(running, 1) | {hit: 5})


def _decode_until(hand: Hand, seq: int, *, grown: int) -> None:
    while len(hand.logits[seq]) < grown:
        hand.decode(*hand.tokens)


def _start_over(hand: Hand, seq: int) -> None:
    """Give up the pages; compute everything known again, beside the others' decodes."""
    known, logits = hand.tokens[seq], hand.logits[seq]
    hand.start(seq, known)
    others = [other for other in hand.tokens if other != seq]
    hand.step(dict.fromkeys(others, 1) | {seq: len(known)})
    hand.logits[seq] = logits | hand.logits[seq]


def _grown(hand: Hand, starts: dict[str, tuple[int, ...]], seq: int) -> int:
    return len(hand.tokens[seq]) - len(starts[SEQUENCES[seq]])
