import pytest

from engine.grammars import accepts_text, build
from yaie.core.request import Grammar
from yaie.text.grammar.gbnf import GbnfError, to_lark

JSON = r"""
# llama.cpp's own style
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def accepted(grammar: str, text: str) -> bool:
    return accepts_text(build(Grammar("lark", to_lark(grammar))), text)


def test_the_json_grammar_of_llama_cpp_is_json() -> None:
    for text in ("{}", '{"a": [1, -2.5e3, "x\\n\\u00e9", null], "b": {"c": true}}', '{ "é": "日"}'):
        assert accepted(JSON, text), text
    for text in ("[]", "{'a': 1}", '{"a": 01}', '{"a": "\t"}', '{"a": 1', '{"a":  1}'):
        assert not accepted(JSON, text), text


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" | "b" "c"', ["a", "bc"], ["ac", "b", ""]),
        ('root ::= ("a" | "b")+ "c"?', ["a", "abbac"], ["c", "acc"]),
        ('root ::= "a"{2,3} x\nx ::= [0-9]{2}', ["aa12", "aaa99"], ["a12", "aa1", "aaaa12"]),
        ('root ::= "a"{2} "b"{1,}', ["aab", "aabbb"], ["aa", "ab"]),
        ("root ::= [^a-c]", ["d", "-", "日"], ["a", "b", "dd"]),
        (r"root ::= [-a\]\\/]+", ["-a", "]\\/"], ["b"]),
        (r'root ::= "\"\\\n\t\x41\u00e9\U0001F600"', ['"\\\n\tAé😀'], ["A"]),
        (r"root ::= [\u3041-\u3096]+", ["ひらがな"], ["漢"]),
        ('root ::= item ("," item)*\nitem ::= [a-z]+', ["a,bc,d"], ["a,", ",a"]),
        ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["(x", "()"]),
        ('root ::= a-b c_D\na-b ::= "1"\nc_D ::= "2"', ["12"], ["21"]),
        ('root ::= "a" | ', ["a", ""], ["b"]),
        ('root ::= ("x" | ) "y"', ["xy", "y"], ["x"]),
        ("root ::= .", ["\n", "é"], ["ab"]),
        ('root ::= "a" # comment "\n# another\n  | "b"', ["a", "b"], ["ab"]),
        ('first ::= "1"\nroot ::= first', ["1"], [""]),
        ('root ::= ""', [""], ["a"]),
    ],
)
def test_rules_mean_what_they_mean_in_llama_cpp(
    grammar: str, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert accepted(grammar, text), text
    for text in bad:
        assert not accepted(grammar, text), text


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("", "root"),
        ('other ::= "a"', "root"),
        ("root ::= missing", "'missing'"),
        ('root ::= "a', "line 1"),
        ('root ::= "x"\n\nroot2 = "y"', "line 3"),
        ('root ::= ("a"', "not closed"),
        ('root ::= "a")', "misplaced"),
        ('root ::= * "a"', "misplaced"),
        ('root ::= "a"**', "misplaced"),
        ('root ::= "a"{99999}', "2000"),
        ("root ::= []", "empty set"),
        (r'root ::= "\uD800"', "no character"),
        ("root ::= " + "(" * 100 + '"a"' + ")" * 100, "misplaced"),
        ('"a" ::= root', "begin a rule"),
    ],
)
def test_what_is_no_grammar_is_refused_in_words(grammar: str, words: str) -> None:
    with pytest.raises(GbnfError) as caught:
        to_lark(grammar)
    assert words in str(caught.value)
