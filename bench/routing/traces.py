"""Generated traces, each from a seed: sessions of one or more turns, with the text that is sent.

Sizes follow the cache of one engine, so that a trace is as hard for engines of 8,000 tokens as for
those of 200,000: the working set is more than 1.5 caches, and fits into all of them together.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

_WORDS: Final = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "all",
    "her",
    "she",
    "there",
    "would",
    "their",
    "we",
    "him",
    "been",
    "has",
    "when",
    "who",
    "will",
    "no",
    "more",
    "if",
    "out",
    "so",
    "what",
    "time",
    "up",
    "go",
    "about",
    "than",
    "into",
    "could",
    "state",
    "only",
    "new",
    "year",
    "some",
    "take",
    "come",
    "these",
    "know",
    "see",
    "use",
    "get",
    "like",
    "then",
    "first",
    "any",
    "work",
    "now",
    "may",
    "such",
    "give",
    "over",
    "think",
    "most",
    "even",
    "find",
    "day",
    "also",
    "after",
    "way",
    "many",
    "must",
    "look",
    "before",
    "great",
    "back",
    "through",
    "long",
    "where",
    "much",
    "should",
    "well",
    "people",
    "down",
    "own",
    "just",
    "because",
    "good",
    "each",
    "those",
    "feel",
    "seem",
    "how",
    "high",
    "too",
    "place",
    "little",
    "world",
    "very",
    "still",
    "nation",
    "hand",
]
BYTES_PER_WORD: Final = 4.4


@dataclass(frozen=True)
class Turn:
    """`after_s`: since the answer before, or the session's start."""

    text: str
    answer_tokens: int
    after_s: float = 0.0


@dataclass(frozen=True)
class Session:
    """Turns of one conversation. `starts_s`: in the trace's time."""

    starts_s: float
    turns: tuple[Turn, ...]
    system: str = ""
    tenant: str = ""


@dataclass(frozen=True)
class Shape:
    """What a trace is made for. `cache_tokens`: of each of `engines` engines. `rate`: requests per
    second. `requests`: about how many. `bytes_per_token`: of this text. `think_s`: between turns.
    """

    engines: int
    cache_tokens: int
    rate: float
    requests: int
    answer_tokens: int
    bytes_per_token: float = 4.0
    think_s: float = 8.0


Maker = Callable[[random.Random, Shape], list[Session]]


def conversations(draw: random.Random, shape: Shape) -> list[Session]:
    """Conversations of several turns, all with one system prompt."""
    unit = shape.cache_tokens
    system = _text(draw, shape, unit // 40)
    return [
        Session(
            starts_s,
            tuple(
                Turn(
                    _text(draw, shape, max(16, int(unit / 160 * draw.uniform(0.5, 1.5)))),
                    max(4, int(shape.answer_tokens * draw.uniform(0.5, 1.5))),
                    draw.expovariate(1 / shape.think_s) if turn else 0.0,
                )
                for turn in range(draw.randint(4, 10))
            ),
            system,
        )
        for starts_s in _arrivals(draw, shape.rate / 7, shape.requests // 7)
    ]


def documents(draw: random.Random, shape: Shape) -> list[Session]:
    """Questions about documents, in the user's message behind the document. Some are popular."""
    size = shape.cache_tokens // 12
    count = int(0.75 * shape.engines * 12)
    texts = [_text(draw, shape, int(size * draw.uniform(0.6, 1.4))) for _ in range(count)]
    return [
        Session(
            starts_s,
            (Turn(f"{text}\n{_text(draw, shape, 24)}", _answer(draw, shape)),),
        )
        for starts_s, text in zip(
            _arrivals(draw, shape.rate, shape.requests),
            draw.choices(texts, _zipf(count, 0.8), k=shape.requests),
            strict=True,
        )
    ]


def tenants(draw: random.Random, shape: Shape) -> list[Session]:
    """Requests of many tenants, each with its own system prompt."""
    size = shape.cache_tokens // 24
    count = int(0.7 * shape.engines * 24)
    texts = [_text(draw, shape, int(size * draw.uniform(0.6, 1.4))) for _ in range(count)]
    return [
        Session(
            starts_s,
            (Turn(_text(draw, shape, max(16, size // 10)), _answer(draw, shape)),),
            texts[which],
            f"tenant-{which}",
        )
        for starts_s, which in zip(
            _arrivals(draw, shape.rate, shape.requests),
            draw.choices(range(count), _zipf(count, 0.7), k=shape.requests),
            strict=True,
        )
    ]


WORKLOADS: Final[dict[str, Maker]] = {
    "conversations": conversations,
    "documents": documents,
    "tenants": tenants,
}


def recorded(file: Path) -> list[Session]:
    """Sessions of a file, each a line of JSON with the fields of `Session`: what a log of one's own
    traffic is turned into.

    Raises:
        msgspec.ValidationError: a line lacks a field, or has one of another type.

    """
    lines = file.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Session) for line in lines if line.strip()]


def _arrivals(draw: random.Random, rate: float, count: int) -> list[float]:
    at_s, found = 0.0, list[float]()
    for _ in range(count):
        at_s += draw.expovariate(rate)
        found.append(at_s)
    return found


def _zipf(count: int, exponent: float) -> list[float]:
    return [1 / (rank + 1) ** exponent for rank in range(count)]


def _answer(draw: random.Random, shape: Shape) -> int:
    return max(4, int(shape.answer_tokens * draw.uniform(0.5, 1.5)))


def _text(draw: random.Random, shape: Shape, tokens: int) -> str:
    size = int(tokens * shape.bytes_per_token)
    return " ".join(draw.choices(_WORDS, k=int(size / BYTES_PER_WORD) + 2))[:size]
