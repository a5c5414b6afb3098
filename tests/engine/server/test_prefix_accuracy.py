"""How far off keys are that are tied by their share of the bytes, measured with the built-in model.

The true number of a key is how many tokens two prompts share that are equal up to its cut.
"""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import yaie.checkpoint
from yaie.core.messages import TiePrefixKeys
from yaie.server.answers.prefix_tracker import PrefixTracker
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.prefix import keys

MODEL = Path(yaie.checkpoint.__file__).parent / "builtin" / "yaie-demo"
PAGE = 16
TEXTS = (
    "You are a helpful assistant. Answer in short and plain sentences.",
    "What is this?\n\n    def area(radius: float) -> float:\n        return 3.14 * radius ** 2",
    "It computes the area of a circle: pi, to five digits, times the square of the radius.",
    '{"orders": [{"id": 1017, "total": 29.95}, {"id": 1018, "total": 105.00}], "currency": "EUR"}',
    "The two orders come to 134.95 euros together. The second one is the larger of them.",
    "Schreibe mir bitte einen kurzen Brief an meine Großmutter, in dem ich ihr danke.",
    "Liebe Großmutter, vielen Dank für das schöne Paket! Ich habe mich sehr darüber gefreut.",
    "And now tell me a long story about a ship, an island, and the people who live there. " * 12,
    "Once upon a time a ship came to an island where nobody had ever seen one. " * 20,
    "Thanks!",
)  # fmt: skip
ROLES = ("system", *("user", "assistant") * 5)


def ids_of(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> list[int]:
    return tokenizer.encode_chat(messages, add_generation_prompt=True)


def shared(one: list[int], other: list[int]) -> int:
    """How many tokens are equal from the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_tied_tokens_are_within_a_few_pages_of_the_true_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokenizer = Tokenizer.load(MODEL)
    all_messages = [{"role": r, "content": t} for r, t in zip(ROLES, TEXTS, strict=False)]
    errors: list[int] = []
    for n in range(2, len(TEXTS) + 1, 2):
        messages = all_messages[:n]
        sent: list[TiePrefixKeys] = []
        body, prompt = {"messages": messages}, ids_of(tokenizer, messages)
        PrefixTracker(
            keys(body, b"k"), b"k", salt="", prompt=prompt, is_chat=False, tie=sent.append
        ).take((1,))
        tied = dict(sent[0].keys)
        for cut in range(1, n + 1):
            key = keys({"messages": messages[:cut]}, b"k").keys[-1]
            if cut == n:
                assert tied[key] == len(prompt)
                continue
            other = ids_of(tokenizer, [*messages[:cut], {"role": "user", "content": "Zebra"}])
            errors.append(abs(tied[key] - shared(prompt, other)))
    figures = f"mean {mean(errors):.0f}, most {max(errors)} of prompts up to {len(prompt)}"
    with capsys.disabled():
        print("\n|tied - true| in tokens:", figures)  # noqa: T201 - a measurement
    assert max(errors) <= 4 * PAGE
