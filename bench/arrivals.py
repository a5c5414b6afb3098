"""Who asks when, for how much: open-loop work from a seed, so that every server sees the same.

Figures of peers were measured with these streams (`peers.py`): a change of the order in which
numbers are drawn makes new figures comparable with nothing. `tests/bench` holds digests of them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import workloads

LOWEST_ID = (
    300  # ids below are bytes and control tokens in the synthetic and the built-in vocabulary
)
BIG_PROMPT, BIG_OUTPUT = 8000, 64
WARM_UP_RATE, WARM_UP_S, WARM_UP_SEED, WARM_UP_OUTPUT = 20.0, 6.0, 1, 16
WARM_UP_SPEED_UP = 8
Span = tuple[int, int]


class Arrival(NamedTuple):
    """One request: seconds after the start, token ids, tokens to answer with."""

    at_s: float
    prompt: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Mix:
    """What is asked for, whatever the rate.

    Attributes:
        inp: least and most tokens of an ordinary prompt.
        out: the same of an ordinary answer.
        big_every_s: seconds between prompts of 8,000 tokens; 0: none.
        seed: of times, lengths and ids; one seed gives the same prompts at every rate.
        vocab: ids are below.

    """

    inp: Span = (200, 800)
    out: Span = (100, 300)
    big_every_s: float = 4
    seed: int = 5
    vocab: int = 100_000


def poisson(rate: float, seconds: float, mix: Mix) -> list[Arrival]:
    """Poisson arrivals of `rate` ordinary requests/s for `seconds`, and the big ones, by time."""
    rng = random.Random(mix.seed)
    arrivals, at_s = [], rng.expovariate(rate)
    while at_s < seconds:
        prompt = _ids(rng, rng.randint(*mix.inp), mix.vocab)
        arrivals.append(Arrival(at_s, prompt, rng.randint(*mix.out)))
        at_s += rng.expovariate(rate)
    if mix.big_every_s:
        arrivals += [
            Arrival(k * mix.big_every_s, _ids(rng, BIG_PROMPT, mix.vocab), BIG_OUTPUT)
            for k in range(1, int(seconds / mix.big_every_s))
        ]
    return sorted(arrivals)


def warm_up(mix: Mix) -> list[Arrival]:
    """Six seconds of 20 requests/s in less than one, with short answers and no big prompt."""
    work = poisson(WARM_UP_RATE, WARM_UP_S, replace(mix, big_every_s=0, seed=WARM_UP_SEED))
    return [Arrival(each.at_s / WARM_UP_SPEED_UP, each.prompt, WARM_UP_OUTPUT) for each in work]


def burst(requests: int, vocab: int) -> list[Arrival]:
    """The first short chats of the offline cell `short`, all at the same moment."""
    prompts, lengths = workloads.workload("short")
    pairs = list(zip(prompts, lengths, strict=True))[:requests]
    return [Arrival(0.0, _folded(prompt, vocab), length) for prompt, length in pairs]


def with_other_ids(arrivals: Sequence[Arrival], turn: int, vocab: int) -> list[Arrival]:
    """The same times and lengths with prompts that no prefix cache knows; turn 0: the same ones."""
    if turn == 0:
        return list(arrivals)
    space, shift = vocab - LOWEST_ID, 7919 * turn
    return [
        each._replace(prompt=[(i - LOWEST_ID + shift) % space + LOWEST_ID for i in each.prompt])
        for each in arrivals
    ]


def _ids(rng: random.Random, count: int, vocab: int) -> list[int]:
    return [rng.randint(LOWEST_ID, vocab - 1) for _ in range(count)]


def _folded(prompt: list[int], vocab: int) -> list[int]:
    return [i if i < vocab else i % (vocab - LOWEST_ID) + LOWEST_ID for i in prompt]
