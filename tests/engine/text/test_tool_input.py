"""Grammars of a tool's free-text input, as they hold inside a JSON string."""

import contextlib
import json
import time

import pytest

from engine.grammars import accepts_text, build
from yaie.core.request import Grammar
from yaie.text.grammar import lark
from yaie.text.grammar.json_string import GrammarTextError
from yaie.text.grammar.tool_input import of_lark, of_regex

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk   // a comment with "quotes"
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
"""
"""In the manner of the grammar with which agents describe patches."""
SUM = r"""
?start: sum
?sum: product | sum "+" product
?product: NUMBER | "(" sum ")"
%import common.NUMBER
%import common.WS
%ignore WS
"""


def allows(inner: str, text: str) -> bool:
    """Whether the object with this input is what the grammar of arguments allows."""
    grammar = Grammar("lark", f"start: {lark.string_field('input', inner)}")
    return accepts_text(build(grammar), json.dumps({"input": text}, ensure_ascii=False))


def test_a_patch_is_written_with_escapes_and_ends_where_the_grammar_says() -> None:
    inner = of_lark(PATCH)
    patch = '*** Begin Patch\n*** Add File: a b.py\n+print("h\\n\\t")\n+\n*** End Patch'
    assert allows(inner, patch)
    assert allows(inner, patch + "\n")
    assert allows(inner, "*** Begin Patch\n*** Delete File: é.py\n*** End Patch")
    for wrong in ("", "print()", "*** Begin Patch\n*** End Patch", patch + " and more"):
        assert not allows(inner, wrong), wrong


def test_a_recursive_grammar_keeps_its_rules_and_what_it_ignores() -> None:
    inner = of_lark(SUM)
    assert allows(inner, "(1 +\n 2.5)+3")
    assert not allows(inner, "(1 + 2")


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (r'start: "\"" /[^"\n]*/ "\""', ['"say \\ so"'], ['"a', '"a\nb"']),
        (r'start: "a"i "\t"', ["A\t", "a\t"], ["a", "b\t"]),
        (r'start: " ".."~" ', ['"', "\\", "z"], ["é", "\n"]),
        ("start: /./", ['"', "\\", "\t", "日"], ["\n", "ab"]),
        ("start: /./s", ["\n", '"'], ["ab"]),
        (r"start: /(?s:.){2}/", ["\n\n", 'a"'], ["a"]),
        (r"start: /[\s]+/", [" \n\t"], ["a"]),
        (r"start: /\S+/", ['a"\\'], ["a b"]),
        (r"start: /\x22\u{5C}\n/", ['"\\\n'], ['"']),
        (r"start: /[\\p]+/", ["\\p"], ["a"]),
        (r"start: /[\"\\]+/", ['\\"'], ["a"]),
        (r"start: /a\/b{2}(?i:c)|d$/", ["a/bbC"], ["a/b"]),
        ("start: WORD (NL WORD)*\n%import common (WORD, NEWLINE -> NL)", ["ab\r\nc"], ["ab\n\n"]),
        ('start: x~2..3\nx: "a" | "\\n"', ["a\n", "a\na"], ["a"]),
        ('start: "(" start ")" | /[^()]+/', ['((say "x"\n))'], ["(a"]),
        ('start: ["a"] "b"', ["ab", "b"], ["a"]),
    ],
)
def test_patterns_mean_the_same_inside_a_string(
    grammar: str, good: list[str], bad: list[str]
) -> None:
    inner = of_lark(grammar)
    for text in good:
        assert allows(inner, text), text
    for text in bad:
        assert not allows(inner, text), text


def test_a_regular_expression_is_of_the_whole_input() -> None:
    inner = of_regex(r'^SELECT\s+[\w/]+( WHERE "[^"]*")?$')
    assert allows(inner, 'SELECT\na/b WHERE "c\td"')
    assert not allows(inner, "SELECT a; DROP b")
    assert allows(of_regex("a/b"), "a/b")


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ('sentence: "a"', "no rule named start"),
        ("start: <|im_end|>", "has no meaning"),
        ('start: %json {"type": "object"}', "has no meaning"),
        ("start: ~/a/", "has no meaning"),
        ("start: X\n%import common.PYTHON", "common.PYTHON is not known"),
        (r"start: /[a&&[b]]/", "too complex"),
        (r"start: /\p{L}/", "not supported"),
        (r'start: "\q"', "not a valid string"),
    ],
)
def test_what_cannot_be_inside_a_string_is_refused(grammar: str, why: str) -> None:
    with pytest.raises(GrammarTextError, match=why):
        of_lark(grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "' + '\\"' * 16_000,
        "start: /" + "[" * 16_000 + "/",
        "start: " + "<" * 32_000,
        'start: "a" /' + "a" * 30_000,
        "start: /{" + "1" * 30_000 + "x/",
    ],
)
def test_what_is_not_closed_is_refused_at_once(grammar: str) -> None:
    begun = time.monotonic()
    with contextlib.suppress(GrammarTextError):
        of_lark(grammar)
    assert time.monotonic() - begun < 1.0


def test_a_large_grammar_is_rewritten_in_no_time() -> None:
    rules = [f'r{n}: r{n + 1} "x"' for n in range(1500)]
    of_lark("\n".join(["start: r0", *rules, 'r1500: "y"']))
