import json
from typing import Any

import pytest

from engine.grammars import accepts_text, build, native_demo, native_tagged, tagged
from yaie.core.request import Grammar, ReasoningBlock
from yaie.text.grammar.forms import FIELDS, after_reasoning, grammar_of
from yaie_api.errors import InvalidRequestError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def asked(**fields: Any) -> Grammar:
    grammar = grammar_of(fields)
    assert grammar is not None
    return grammar


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        grammar_of(fields)
    return caught.value


@pytest.mark.parametrize(
    "fields",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA},
            }
        },
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"json_schema": SCHEMA, "regex": None},
    ],
)
def test_a_schema_means_the_same_under_every_name(fields: dict[str, Any]) -> None:
    grammar = asked(**fields)
    assert (grammar.kind, json.loads(grammar.text)) == ("json_schema", SCHEMA)
    assert grammar.param in fields


@pytest.mark.parametrize(
    "fields",
    [{"structured_outputs": {"regex": "a|b"}}, {"guided_regex": "a|b"}, {"regex": "a|b"}],
)
def test_a_regex_means_the_same_under_every_name(fields: dict[str, Any]) -> None:
    grammar = asked(**fields)
    assert (grammar.kind, grammar.text) == ("regex", "a|b")


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ],
)
def test_any_json_object_can_be_asked_for(fields: dict[str, Any]) -> None:
    matcher = build(asked(**fields))
    assert accepts_text(matcher, '{"a": [1, {"b": null}], "c": "x"}')
    assert not accepts_text(matcher, "[1]")


@pytest.mark.parametrize("name", ["structured_outputs", "guided_choice"])
def test_choices_are_exactly_themselves(name: str) -> None:
    choices = ["yes", 'no "way"', "日本", "a\nb\\", "\x01\u2028/", "yes"]
    value = {"choice": choices} if name == "structured_outputs" else choices
    matcher = build(asked(**{name: value}))
    assert all(accepts_text(matcher, choice) for choice in choices)
    for other in ("ye", "yesyes", "", "no way", "日"):
        assert not accepts_text(matcher, other)


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"grammar": 'root ::= "a" [0-9]+'}},
        {"structured_outputs": {"grammar": 'start: "a" /[0-9]+/'}},
        {"guided_grammar": 'root ::= "a" [0-9]+'},
        {"ebnf": 'root ::= "a" [0-9]+'},
        {"grammar": 'root ::= "a" [0-9]+'},
    ],
)
def test_a_grammar_means_the_same_under_every_name(fields: dict[str, Any]) -> None:
    matcher = build(asked(**fields))
    assert accepts_text(matcher, "a12")
    assert not accepts_text(matcher, "a")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "text"}, "structured_outputs": None},
        {"structured_outputs": {}},
        {"structured_outputs": {"json": None, "json_object": False, "disable_fallback": True}},
        {"temperature": 3},
    ],
)
def test_no_form_is_asked_for(fields: dict[str, Any]) -> None:
    assert grammar_of(fields) is None


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": 3}, "response_format", "object"),
        ({"response_format": {}}, "response_format", "json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
        ({"response_format": {"type": "structural_tag"}}, "response_format", "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format",
            "'not'",
        ),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "json, regex"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs", "supported"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs", "supported"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs", "true or false"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs", "valid JSON"),
        ({"structured_outputs": {"json": "[" * 90_000}}, "structured_outputs", "valid JSON"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs", "not empty"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs", "strings"),
        ({"guided_choice": ["a", ""]}, "guided_choice", "empty string"),
        ({"guided_choice": ["a"] * 2000}, "guided_choice", "1024"),
        ({"guided_choice": ["\ud800"]}, "guided_choice", "Unicode"),
        ({"guided_regex": ""}, "guided_regex", "regular expression"),
        ({"regex": ["a"]}, "regex", "string"),
        ({"regex": "a" * 5000}, "regex", "4096"),
        ({"regex": "a\\"}, "regex", "escape"),
        ({"regex": "\ud800"}, "regex", "Unicode"),
        ({"grammar": "what"}, "grammar", "rule"),
        ({"regex": "a", "guided_json": {}}, "regex", "guided_json and regex"),
        (
            {"response_format": {"type": "json_object"}, "ebnf": 'root ::= "a"'},
            "ebnf",
            "one of them",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(
    fields: dict[str, Any], param: str, words: str
) -> None:
    error = refused(**{name: fields[name] for name in FIELDS if name in fields})
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize("vocabulary", ["text", "token"])
@pytest.mark.parametrize("kind", ["json", "regex", "grammar"])
def test_the_form_begins_where_reasoning_ends(kind: str, vocabulary: str) -> None:
    form, text = {
        "json": ({"json": SCHEMA}, '{"a": 1}'),
        "regex": ({"regex": "[ab]/{2}"}, "b//"),
        "grammar": ({"grammar": "start: foo\nfoo: /c+/"}, "cc"),
    }[kind]
    native = native_tagged() if vocabulary == "token" else native_demo()
    plain = asked(structured_outputs=form)

    def accepts(opened: bool, output: str) -> bool:
        grammar = after_reasoning(plain, ReasoningBlock("<think>", "</think>", opened))
        tokenizer = tagged() if vocabulary == "token" else None
        return accepts_text(build(grammar, native), output, tokenizer)

    assert accepts(True, f"why {{not}}?</think>\n\n{text}")
    assert accepts(True, f"</think>{text}")
    assert not accepts(True, text)
    assert not accepts(True, "why</think>\n\n\n" + text)
    assert accepts(False, f"<think>\nwhy\n</think>\n{text}")
    assert accepts(False, text)
    assert not accepts(False, "why " + text)
    assert not accepts(True, "why</think>other")


def test_without_a_block_nothing_changes() -> None:
    grammar = asked(regex="a")
    assert after_reasoning(grammar, None) == grammar
