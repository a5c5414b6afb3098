# ruff: noqa: RUF001 - a family of models writes its tags with fullwidth bars

import json
import random
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tools.reading import BEGIN, SIGNS, joined, pieces, read
from yaie.text.parts import ToolCallPart
from yaie.text.tools import FORMATS, ToolSpec, format_for

SPECS = [ToolSpec("f"), ToolSpec("g")]
NEXT = "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"
END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
ARGUMENTS = '{"x": "}<tool_call>\\"]", "y": [1, {"z": null}], "ü": "日"}'

CASES: dict[str, list[tuple[str, list[tuple[str, ...]]]]] = {
    "hermes": [
        ("plain < text", [("text", "plain < text")]),
        (
            f'so:\n<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>',
            [("text", "so:"), ("call", "f", ARGUMENTS)],
        ),
        (
            (
                '<tool_call>{"arguments":{"a":1},"name":"f"}</tool_call>\n'
                '<tool_call>{"id": [1], "name": "other", "arguments": {}}</tool_call>\nbye '
            ),
            [("call", "f", '{"a":1}'), ("call", "other", "{}"), ("text", "\nbye ")],
        ),
        ('<tool_call>{"name":"f"}</tool_call>', [("call", "f", "{}")]),
        ('<tool_call>{"name":"f","arguments":null}</tool_call>', [("call", "f", "{}")]),
        (
            '<tool_call>{"name":"f","arguments":"{\\"a\\": 1}"}</tool_call>',
            [("call", "f", '{"a": 1}')],
        ),
        ('<tool_call>{"name":"f","arguments":{}}', [("call", "f", "{}")]),
        ('<tool_call>{"name":"f","arguments":{"a":1', [("call", "f", '{"a":1')]),
        ('a <tool_call>\n{"na', [("text", 'a <tool_call>\n{"na')]),
        ("a <tool_cal", [("text", "a <tool_cal")]),
        (
            '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
            [("text", '<tool_call>{"name": 3, "arguments": {}}</tool_call>')],
        ),
        (
            '<tool_call>{"name":"f","arguments":[]}</tool_call>',
            [("text", '<tool_call>{"name":"f","arguments":[]}</tool_call>')],
        ),
        (
            '<tool_call><tool_call>{"name":"f","arguments":{}}</tool_call>',
            [("text", "<tool_call>"), ("call", "f", "{}")],
        ),
        (
            '<tool_call>{"name":"f","arguments":{"q":]} rest',
            [("call", "f", '{"q":'), ("text", "]} rest")],
        ),
        (
            '<tool_call>{"name":"f","arguments":{},"arguments":{}}</tool_call>',
            [("call", "f", "{}"), ("text", ":{}}</tool_call>")],
        ),
        (
            '<tool_call>{"n\\u0061me":"\\u0066","arguments":{"\\ud800":"\\u007d"}}</tool_call>',
            [("call", "f", '{"\\ud800":"\\u007d"}')],
        ),
        (
            '<tool_call>{"name":"\\ud83d","arguments":{}}</tool_call>',
            [("text", '<tool_call>{"name":"\\ud83d","arguments":{}}</tool_call>')],
        ),
        *(
            (bad, [("text", bad)])
            for text in ('{\\"a\\": \\"\\ud800\\"}', "{oops", "{}{}", "[]")
            for bad in [f'<tool_call>{{"name":"f","arguments":"{text}"}}</tool_call>']
        ),
    ],
    "llama3_json": [
        ('{"name": "f", "parameters": {"a": 1}}', [("call", "f", '{"a": 1}')]),
        (
            ' {"name": "f", "parameters": {"a": ";"}}; {"name": "g", "parameters": {}}',
            [("call", "f", '{"a": ";"}'), ("call", "g", "{}")],
        ),
        (
            '<|python_tag|>{"type": "function", "name": "f", "parameters": {}}',
            [("call", "f", "{}")],
        ),
        (
            '{"name": "Ada", "parameters": {}}',
            [("text", '{"name": "Ada", "parameters": {}}')],
        ),
        ('{"answer": 42}', [("text", '{"answer": 42}')]),
        (
            'I call {"name": "f", "parameters": {}}',
            [("text", 'I call {"name": "f", "parameters": {}}')],
        ),
        ("<|python_tag|>print(1)", [("text", "<|python_tag|>print(1)")]),
        ("  \n", [("text", "  \n")]),
        (
            " " * 65 + '{"name": "f", "parameters": {}}',
            [("text", " " * 65 + '{"name": "f", "parameters": {}}')],
        ),
    ],
    "mistral": [
        (
            '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "]"}}, {"name": "g", "arguments": {}}]',
            [("call", "f", '{"a": "]"}'), ("call", "g", "{}")],
        ),
        (
            'ok [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]abcdef123[ARGS]{}',
            [("text", "ok"), ("call", "f", '{"a": 1}'), ("call", "g", "{}")],
        ),
        ('[TOOL_CALLS]f{"a": {}}', [("call", "f", '{"a": {}}')]),
        ("[TOOL_CALLS] no", [("text", "[TOOL_CALLS] no")]),
        ("[TOOL_CALLS] [", [("text", "[TOOL_CALLS] [")]),
        ("[TOOL_CALLS]f[ARGS]7", [("text", "[TOOL_CALLS]f[ARGS]7")]),
        ("[TOOL_CALLS] [1, 2]", [("text", "[TOOL_CALLS] [1, 2]")]),
        ("[TOOL", [("text", "[TOOL")]),
        ("[TOOL_CALLS]f[ARGS] \n 7", [("text", "[TOOL_CALLS]f[ARGS] \n 7")]),
        ("[TOOL_CALLS]" + "f" * 400 + "[ARGS]{}", [("text", f"[TOOL_CALLS]{'f' * 400}[ARGS]{{}}")]),
        (
            "[TOOL_CALLS] [1 [TOOL_CALLS]f[ARGS]{}], x",
            [("text", "[TOOL_CALLS] [1"), ("call", "f", "{}"), ("text", "], x")],
        ),
    ],
    "deepseek_v3": [
        (
            (
                f"hm {BEGIN}function<｜tool▁sep｜>f\n```json\n{ARGUMENTS}\n```{NEXT}"
                f"function<｜tool▁sep｜>g\n```json\n{{}}\n```{END} end"
            ),
            [("text", "hm"), ("call", "f", ARGUMENTS), ("call", "g", "{}"), ("text", " end")],
        ),
        (
            f'{BEGIN}f<｜tool▁sep｜>{{"a": "```"}}{NEXT}g<｜tool▁sep｜>{{}}{END}',
            [("call", "f", '{"a": "```"}'), ("call", "g", "{}")],
        ),
        (
            f"{BEGIN} function<｜tool▁sep｜>f\n```json\n{{}}\n```{END}",
            [("call", "f", "{}")],
        ),
        (
            f"{BEGIN}{'f' * 400}<｜tool▁sep｜>{{}}",
            [("text", f"{BEGIN}{'f' * 400}<｜tool▁sep｜>{{}}")],
        ),
        (f"{BEGIN}what?\n\nno", [("text", f"{BEGIN}what?\n\nno")]),
        ("<｜tool▁calls▁begin｜> no", [("text", "<｜tool▁calls▁begin｜> no")]),
        (f"{BEGIN}f<｜tool▁sep｜>[]", [("text", f"{BEGIN}f<｜tool▁sep｜>[]")]),
    ],
}
ALL = [(name, text, wanted) for name, cases in CASES.items() for text, wanted in cases]


@pytest.mark.parametrize(("name", "text", "wanted"), ALL)
def test_calls_and_text_are_told_apart_whatever_the_chunks(
    name: str, text: str, wanted: list[tuple[str, ...]]
) -> None:
    parser = format_for(None, name).parser
    assert read(parser(SPECS), [text]) == wanted
    assert read(parser(SPECS), text) == wanted  # one character at a time
    for seed in range(20):
        chunks = pieces(text, random.Random(seed), longest=1 + seed)
        assert read(parser(SPECS), chunks) == wanted, seed


def test_a_call_is_shown_while_it_is_written() -> None:
    parser = format_for(None).parser(SPECS)
    shown = [parser.push(text) for text in ("<tool_call>", '{"name": "f", ', '"arguments": {"a"')]
    assert joined(shown[2]) == [("call", "f", '{"a"')]
    assert parser.push(": 1") == [ToolCallPart(0, ": 1")]
    assert parser.push("}}") == [ToolCallPart(0, "}")]


def test_text_is_held_back_only_while_it_may_become_a_tag() -> None:
    parser = format_for(None).parser(SPECS)
    assert joined(parser.push("a <tool_c")) == [("text", "a")]
    assert joined(parser.push("ry")) == [("text", " <tool_cry")]
    assert joined(parser.push("x")) == [("text", "x")]


def test_call_ids_are_those_that_the_families_templates_take_back() -> None:
    def ids(name: str, text: str) -> list[str]:
        parser = format_for(None, name).parser(SPECS)
        parts = [*parser.push(text), *parser.finish()]
        return [part.call_id or "" for part in parts if isinstance(part, ToolCallPart)]

    (hermes,) = ids("hermes", '<tool_call>{"name":"f"}</tool_call>')
    (mistral,) = ids("mistral", "[TOOL_CALLS]f[ARGS]{}")
    assert re.fullmatch(r"call_[0-9a-f]{24}", hermes)
    assert re.fullmatch(r"[A-Za-z0-9]{9}", mistral)


@given(signs=st.lists(st.sampled_from(SIGNS), max_size=30), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", FORMATS)
def test_chunks_never_change_what_is_read(name: str, signs: list[str], seed: int) -> None:
    text = "".join(signs)
    parser = format_for(None, name).parser
    whole = read(parser(SPECS), [text])
    assert read(parser(SPECS), pieces(text, random.Random(seed), longest=9)) == whole
    if not any(kind == "call" for kind, *_ in whole):
        assert whole == ([("text", text)] if text else [])


@given(
    arguments=st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers(), max_size=4),
    seed=st.integers(0, 10**6),
)
def test_arguments_come_out_as_they_were_written(arguments: dict[str, object], seed: int) -> None:
    written = json.dumps(arguments, ensure_ascii=seed % 2 == 0)
    text = f'<tool_call>\n{{"name": "f", "arguments": {written}}}\n</tool_call>'
    chunks = pieces(text, random.Random(seed), longest=4)
    assert read(format_for(None).parser(SPECS), chunks) == [("call", "f", written)]


ENFORCED = {
    "hermes": ("so: ", "<tool_call>", '\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'),
    "llama3_json": ("", "{", '"name": "f", "parameters": {"a": 1}}; {"name": "g"}'),
    "mistral": ("so: ", "[TOOL_CALLS]", ' [{"name": "f", "arguments": {"a": 1}}]'),
    "mistral_args": ("so: ", "[TOOL_CALLS]", 'f[ARGS]{"a": 1}'),
    "deepseek_v31": ("so: ", BEGIN, f'f<｜tool▁sep｜>{{"a": 1}}{END}'),
}
"""What a grammar lets a model write that may speak first: text, the beginning of a call, its rest.
"""


@pytest.mark.parametrize("name", ENFORCED)
def test_a_call_that_the_end_cuts_off_is_no_text_where_a_grammar_made_it(name: str) -> None:
    said, opening, rest = ENFORCED[name]
    parser = format_for(None, name).parser
    for end in range(len(rest) + 1):
        found = read(parser(SPECS, enforced=True), [said, opening, rest[:end]])
        shown = "".join(one[1] for one in found if one[0] == "text")
        assert shown.strip() == said.strip(), rest[:end]


def test_the_beginning_of_a_tag_stays_text_where_the_model_may_speak() -> None:
    assert read(format_for(None).parser(SPECS, enforced=True), ["a <tool_c"]) == [
        ("text", "a <tool_c")
    ]


HOSTILE: dict[str, Callable[[int], str]] = {
    "openings": lambda n: "<tool_call>" * n,
    "objects": lambda n: '<tool_call>{"' * n,
    "brackets": lambda n: '<tool_call>{"name":"f","x":' + "[" * n,
    "backslashes": lambda n: '<tool_call>{"name":"' + "\\" * n,
    "blanks": lambda n: "<tool_call>" + " " * n,
    "blanks after": lambda n: '<tool_call>{"name":"f"}' + " \n" * n,
    "partial tags": lambda n: "<tool_cal" * n,
    "lists": lambda n: "[TOOL_CALLS][" * n,
    "long name": lambda n: "[TOOL_CALLS]" + "f" * n,
    "heads": lambda n: (BEGIN + "f") * n,
    "bare": lambda n: '{"name":' * n,
    "huge arguments": lambda n: '<tool_call>{"name":"f","arguments":{"a":"' + "x" * n,
    "huge string": lambda n: '<tool_call>{"name":"f","arguments":"{' + "x" * n,
    "blank heads": lambda n: (BEGIN + " " * 300) * n,
    "separators": lambda n: '{"name":"f"};' * n,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_long_head_in_one_piece_takes_linear_time(name: str) -> None:
    for text in (
        BEGIN + " " * 50_000,
        "[TOOL_CALLS]" + " f" * 25_000,
        "[TOOL_CALLS]" + "f" * 50_000,
    ):
        began = time.process_time()
        assert read(format_for(None, name).parser(SPECS), [text]) == [("text", text)]
        assert time.process_time() - began < 1.0


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["hermes", "llama3_json", "mistral", "deepseek_v3"])
def test_hostile_text_takes_linear_time(name: str, kind: str) -> None:
    """100 kB in pieces of four characters; anything quadratic would take minutes."""
    text = HOSTILE[kind](100_000)[:100_000]
    parser = format_for(None, name).parser(SPECS)
    began = time.process_time()
    for start in range(0, len(text), 4):
        parser.push(text[start : start + 4])
    parser.finish()
    assert time.process_time() - began < 3.0
