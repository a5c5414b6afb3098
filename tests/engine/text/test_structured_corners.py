"""Corners of what clients ask for: each is honoured exactly, or refused in words."""

from typing import Any

import pytest

from engine.grammars import accepts_text, build
from yaie.text.grammar.forms import grammar_of
from yaie_api.errors import InvalidRequestError

TREE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["next"],
    "additionalProperties": False,
}
TWO = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SQL = 'root ::= "SELECT " column " FROM " [a-z]+\ncolumn ::= "id" | "name"\n'
ARITHMETIC = '?start: term (("+"|"-") term)*\n?term: NUMBER\nNUMBER: /[0-9]+/\n%ignore / +/\n'


def schema(value: Any, **beside: Any) -> dict[str, Any]:
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": value, **beside},
        }
    }


def regex(value: str) -> dict[str, Any]:
    return {"structured_outputs": {"regex": value}}


def lark(value: str) -> dict[str, Any]:
    return {"structured_outputs": {"grammar": value}}


HONOURED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "strict says nothing more": (schema(TWO, strict=True), ['{"a": 1}'], ["{}"]),
    "reference": (
        schema({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"enum": [1]}}}),
        ["1"],
        ["2"],
    ),
    "reference with a bound beside it": (
        schema({"$ref": "#/$defs/a", "minimum": 5, "$defs": {"a": {"type": "integer"}}}),
        ["5"],
        ["4", '"5"'],
    ),
    "reference to an anchor": (
        schema({"$ref": "#k", "$defs": {"a": {"$anchor": "k", "enum": [1]}}}),
        ["1"],
        ["2"],
    ),
    "recursion": (schema(TREE), ['{"next": {"next": null}}'], ['{"next": 1}', "{}"]),
    "other properties have a schema": (
        schema({"type": "object", "additionalProperties": {"type": "integer"}}),
        ["{}", '{"x": 1}'],
        ['{"x": "1"}'],
    ),
    "enum of many types": (
        schema({"enum": [1, "a", None, True, [1], {"a": 1}]}),
        ["1", '"a"', "null", "true", "[1]", '{"a": 1}'],
        ["2", '"b"', "false", "[2]", "{}"],
    ),
    "enum of more types than its type": (
        schema({"type": "string", "enum": ["a", 1]}),
        ['"a"'],
        ["1"],
    ),
    "constant": (schema({"const": {"a": [1, None]}}), ['{"a": [1, null]}'], ["{}", "null"]),
    "constant null": (schema({"const": None}), ["null"], ["1"]),
    "pattern anywhere": (schema({"type": "string", "pattern": "b"}), ['"abc"'], ['"ac"']),
    "pattern with length": (
        schema({"type": "string", "pattern": "^a+$", "maxLength": 3}),
        ['"aaa"'],
        ['"aaaa"', '""'],
    ),
    "format": (
        schema({"type": "string", "format": "date"}),
        ['"2024-02-29"'],
        ['"2023-02-29"', '"today"'],
    ),
    "many items": (
        schema({"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000}),
        ["[]", "[1, 2]"],
        ['["a"]'],
    ),
    "required of no listed property": (
        schema({"type": "object", "required": ["z"]}),
        ['{"z": 1}'],
        ["{}"],
    ),
    "the empty text only": (regex("^$"), [""], ["a", " "]),
    "anchored alternatives": (regex("^a$|^b$"), ["a", "b"], ["ab", ""]),
    "one choice": ({"structured_outputs": {"choice": ["a"]}}, ["a"], ["", "b"]),
    "EBNF": (lark(SQL), ["SELECT id FROM users"], ["SELECT * FROM users", "SELECT id"]),
    "Lark": (lark(ARITHMETIC), ["1+2", "1 + 22-3"], ["+", "1+"]),
    "left recursion": (lark('root ::= root "a" | "a"'), ["a", "aaa"], ["", "b"]),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no schema": (schema(None), "needs a schema"),
    "no value at all": (schema(False), "schema is false"),
    "reference to nothing": (schema({"$ref": "#/$defs/b"}), "does not exist"),
    "reference to itself": (schema({"$ref": "#"}), "no text has it"),
    "enum of nothing": (schema({"enum": []}), "Unsatisfiable"),
    "enum of another type": (schema({"type": "string", "enum": [1]}), "Unsatisfiable"),
    "look-ahead": (schema({"type": "string", "pattern": "^(?!a)b"}), "look-around"),
    "look-behind": (regex("(?<=a)b"), "look-around"),
    "border of a word": (schema({"type": "string", "pattern": "\\ba"}), "look-around"),
    "end in the middle": (regex("a$b"), "look-around"),
    "back reference": (regex("(a)\\1"), "backreferences"),
    "nothing at all": (regex("[^\\s\\S]"), "no text has it"),
    "more items than there may be": (
        schema({"type": "array", "minItems": 3, "maxItems": 2}),
        "Unsatisfiable",
    ),
    "items below nothing": (schema({"type": "array", "minItems": -1}), "minItems"),
    "an integer that no machine has": (schema({"type": "integer", "minimum": 10**40}), "64 bits"),
    "a required property that is not allowed": (
        schema({"type": "object", "required": ["z"], "additionalProperties": False}),
        "'z'",
    ),
    "alternatives that overlap": (
        schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        "anyOf",
    ),
    "no choice": ({"structured_outputs": {"choice": []}}, "not empty"),
    "a rule that is only itself": (lark("root ::= root"), "no text has it"),
    "a rule that is missing": (lark("start: foo"), "foo"),
    "priorities": (lark('start.1: "a"'), "priority"),
    "another EBNF": (lark('root = "a";'), "line 1"),
}


@pytest.mark.parametrize("name", HONOURED)
def test_a_form_is_kept_exactly(name: str) -> None:
    fields, inside, outside = HONOURED[name]
    grammar = grammar_of(fields)
    assert grammar is not None
    matcher = build(grammar)
    for text in inside:
        assert accepts_text(matcher, text), text
    for text in outside:
        assert not accepts_text(matcher, text), text


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_cannot_be_kept_is_refused_in_words(name: str) -> None:
    fields, words = REFUSED[name]

    def prepared() -> None:
        grammar = grammar_of(fields)
        assert grammar is not None
        build(grammar)

    with pytest.raises(InvalidRequestError) as caught:
        prepared()
    assert caught.value.param == next(iter(fields))
    assert words in caught.value.message
    for inner in ("llguidance", "derivre", "Some(", "verbose", "Traceback", "NoExtension"):
        assert inner not in caught.value.message
