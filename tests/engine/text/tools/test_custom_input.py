"""The free text of a custom tool's call, inside the arguments that a model writes."""

import json
import random

import pytest

from engine.text.tools.reading import pieces
from yaie.text.tools.custom_input import InputReader, arguments_of


def read(arguments: str, seed: int = 0) -> str:
    reader = InputReader()
    return "".join(reader.push(p) for p in pieces(arguments, random.Random(seed), 3))


def test_any_text_is_read_back_however_it_arrives() -> None:
    rng = random.Random(7)
    for seed in range(600):
        text = "".join(rng.choice('ab"\\\n\té😀日{}/') for _ in range(rng.randrange(12)))
        for written in (
            arguments_of(text),
            json.dumps({"input": text}),
            f' {{"input" :{json.dumps(text)} }}\n',
        ):
            assert read(written, seed) == text


def test_text_is_told_as_soon_as_it_is_certain() -> None:
    reader = InputReader()
    told = [
        reader.push(piece) for piece in ('{"input": "a', "b\\", "n", "\\ud83d", "\\ude00", '"}')
    ]
    assert told == ["a", "b", "\n", "", "😀", ""]


@pytest.mark.parametrize("arguments", ["{}", '{"x": 1}', "[1]", '{"input": 5}', "free text"])
def test_arguments_in_another_form_are_the_input(arguments: str) -> None:
    assert read(arguments) == arguments


def test_half_a_character_is_replaced_and_a_wrong_escape_kept() -> None:
    assert read('{"input": "\\ud83dx"}') == "\ufffdx"
    assert read('{"input": "a\\qb').startswith("a\\qb")
