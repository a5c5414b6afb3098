import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tools.reading import pieces, read
from yaie.text.parts import OutputParser
from yaie.text.reasoning import FORMATS, chain, format_for
from yaie.text.tools import format_for as tools_for
from yaie_api.errors import InvalidRequestError

CASES: list[tuple[bool, str, list[tuple[str, ...]]]] = [
    (True, "why\n</think>\n\nyes", [("reasoning", "why"), ("text", "yes")]),
    (True, "\nwhy", [("reasoning", "why")]),
    (True, "</think>yes", [("text", "yes")]),
    (True, "a </thin k", [("reasoning", "a </thin k")]),
    (True, "x</think>a </think> b", [("reasoning", "x"), ("text", "a </think> b")]),
    (False, "<think>\nwhy\n</think>\nyes", [("reasoning", "why"), ("text", "yes")]),
    (False, " \n<think>w</think>", [("reasoning", "w")]),
    (False, "yes, <think> no", [("text", "yes, <think> no")]),
    (False, "<thin", [("text", "<thin")]),
    (False, "  ", [("text", "  ")]),
    (False, " " * 65 + "<think>w", [("text", " " * 65 + "<think>w")]),
    (True, "why </think", [("reasoning", "why </think")]),
    (
        True,
        'say <tool_call>{"name": "f"}</tool_call>',
        [("reasoning", 'say <tool_call>{"name": "f"}</tool_call>')],
    ),
    (
        False,
        '<think>a <tool_call> b</think>\n<tool_call>\n{"name": "f"}\n</tool_call>',
        [("reasoning", "a <tool_call> b"), ("call", "f", "{}")],
    ),
]


SIGNS = ["<think>", "</think>", "<", " ", "\n", "a", "é", " " * 40, "<tool_call>", '{"name":"f"}']


def parser(*, opened: bool) -> OutputParser:
    form = format_for(None, "qwen3")
    assert form is not None
    both = chain(form.parser(opened=opened), tools_for(None).parser([]))
    assert both is not None
    return both


@pytest.mark.parametrize(("opened", "text", "wanted"), CASES)
def test_reasoning_text_and_calls_are_told_apart_whatever_the_chunks(
    opened: bool, text: str, wanted: list[tuple[str, ...]]
) -> None:
    assert read(parser(opened=opened), [text]) == wanted
    for seed in range(20):
        chunks = pieces(text, random.Random(seed), longest=1 + seed)
        assert read(parser(opened=opened), chunks) == wanted


@given(
    signs=st.lists(st.sampled_from(SIGNS), max_size=20),
    opened=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_chunks_never_change_what_is_read(signs: list[str], opened: bool, seed: int) -> None:
    text = "".join(signs)
    chunks = pieces(text, random.Random(seed), longest=7)
    assert read(parser(opened=opened), chunks) == read(parser(opened=opened), [text])


@pytest.mark.parametrize("sign", ["<think>", "</thin", " ", "</think>", "a"])
def test_hostile_text_takes_linear_time(sign: str) -> None:
    text = sign * (200_000 // len(sign))
    for opened in (True, False):
        reader = parser(opened=opened)
        began = time.process_time()
        for start in range(0, len(text), 5):
            reader.push(text[start : start + 5])
        reader.finish()
        assert time.process_time() - began < 3.0


@pytest.mark.parametrize(
    ("name", "tail", "opened"),
    [
        ("qwen3", "<|im_start|>assistant\n<think>\n", True),
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("qwen3", "<|im_start|>assistant\n", False),
        ("deepseek_r1", "<｜Assistant｜>", True),  # noqa: RUF001 - the family's tag
        ("deepseek_r1", "<｜Assistant｜></think>", False),  # noqa: RUF001 - the family's tag
        ("mistral", "[/INST]", False),
        ("mistral", "[/INST][THINK]", True),
    ],
)
def test_the_prompts_end_tells_who_opens_the_block(name: str, tail: str, opened: bool) -> None:
    form = format_for(None, name)
    assert form is not None
    assert form.opened(tail) is opened


def test_the_format_is_the_one_that_the_template_writes() -> None:
    for template, name in (
        ("{{ '</think>' }}", "qwen3"),
        ("[THINK][/THINK]", "mistral"),
    ):
        found = format_for(template)
        assert found is not None
        assert found.name == name
    assert format_for("{{ messages }}") is None
    assert format_for(None) is None
    with pytest.raises(InvalidRequestError) as caught:
        format_for(None, "socratic")
    assert caught.value.param == "reasoning_parser"
    assert all(name in caught.value.message for name in FORMATS)


def test_tags_of_both_parsers_are_shown() -> None:
    assert {"<think>", "</think>", "<tool_call>"} <= parser(opened=True).shown_special_tokens
    assert chain(None, None) is None
