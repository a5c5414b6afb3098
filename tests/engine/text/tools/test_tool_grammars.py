import json
import random

import jsonschema_rs
import pytest

from engine.grammars import (
    EOS,
    PADDING,
    accepts_text,
    allowed,
    build,
    demo,
    native_demo,
    native_tagged,
    tagged,
    walk,
)
from engine.text.tools.reading import read
from yaie.core.request import Grammar, ReasoningBlock
from yaie.text.grammar.forms import after_reasoning
from yaie.text.tools import FORMATS, ToolChoice, ToolSpec, format_for

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"$ref": "#/$defs/days"}},
    "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
}
SPECS = [ToolSpec("weather", parameters=WEATHER, strict=True), ToolSpec("now", strict=True)]
VOCABULARIES = {"tags are text": (demo, native_demo), "tags are tokens": (tagged, native_tagged)}
REQUIRED, AUTO = ToolChoice("required"), ToolChoice()


def grammar(name: str, choice: ToolChoice, *, parallel: bool = True) -> Grammar:
    made = format_for(None, name).grammar(SPECS, choice, parallel=parallel)
    assert made is not None
    return made


def check(calls: list[tuple[str, ...]]) -> None:
    schemas = {spec.name: spec.arguments_schema for spec in SPECS}
    for _, name, arguments in calls:
        assert jsonschema_rs.is_valid(dict(schemas[name]), json.loads(arguments)), arguments


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", FORMATS)
def test_required_calls_are_written_and_read_back(name: str, vocabulary: str) -> None:
    """Random tokens under the grammar: every output that ends is valid calls and nothing else."""
    tokenizer, native = (make() for make in VOCABULARIES[vocabulary])
    numbers = set()
    for parallel in (True, False):
        matcher = build(grammar(name, REQUIRED, parallel=parallel), native)
        for seed in range(12):
            text = walk(matcher, tokenizer, random.Random(seed))
            if text is None:
                continue
            found = read(format_for(None, name).parser(SPECS), [text])
            assert {kind for kind, *_ in found} == {"call"}, text
            assert parallel or len(found) == 1
            check(found)
            numbers.add(len(found))
    assert 1 in numbers


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_call_is_one_call_of_that_tool(name: str) -> None:
    matcher = build(grammar(name, ToolChoice("named", "now")), native_tagged())
    text = walk(matcher, tagged(), random.Random(1))
    assert text is not None
    assert read(format_for(None, name).parser(SPECS), [text]) == [("call", "now", "{}")]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", FORMATS)
def test_text_stays_free_and_calls_in_it_are_valid(name: str, vocabulary: str) -> None:
    tokenizer, native = (make() for make in VOCABULARIES[vocabulary])
    form = format_for(None, name)
    opening = form.parser(SPECS).opening  # type: ignore[attr-defined]  # every format has one
    matcher = build(grammar(name, AUTO), native)
    assert accepts_text(matcher, "Hello, 世界!\n\nAll {is} [free].", tokenizer)
    assert accepts_text(matcher, "", tokenizer)
    assert not accepts_text(matcher, opening + " nonsense", tokenizer)
    n_calls = 0
    for seed in range(8):
        text = walk(matcher, tokenizer, random.Random(seed), start=opening)
        found = [] if text is None else read(form.parser(SPECS), [text])
        calls = [one for one in found if one[0] == "call"]
        n_calls += len(calls)
        check(calls)
        assert text is None or calls
    assert n_calls


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", ["hermes", "mistral_args"])
def test_without_parallel_calls_nothing_follows_the_first(name: str, vocabulary: str) -> None:
    tokenizer, native = (make() for make in VOCABULARIES[vocabulary])
    call = {
        "hermes": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "mistral_args": "[TOOL_CALLS]now[ARGS]{}",
    }[name]
    single = build(grammar(name, AUTO, parallel=False), native)
    assert accepts_text(single, "No call.", tokenizer)
    assert accepts_text(single, f"Now: {call}", tokenizer)
    assert not accepts_text(single, call + call, tokenizer)
    assert accepts_text(build(grammar(name, AUTO), native), call + call, tokenizer)


def test_a_model_that_writes_other_special_tokens_in_text_may() -> None:
    matcher = build(grammar("hermes", AUTO), native_tagged())
    assert accepts_text(matcher, "<think>hm</think>ok", tagged())


def test_free_text_ends_with_eos_and_has_no_padding() -> None:
    matcher = build(grammar("hermes", AUTO), native_tagged())
    size = tagged().get_vocab_size()
    assert max(allowed(matcher, size + PADDING)) < size
    assert matcher.consume_token(EOS[0])
    assert matcher.is_stopped()


def test_reasoning_cannot_end_with_eos() -> None:
    block = ReasoningBlock("<think>", "</think>", opened=True)
    for made in (grammar("hermes", AUTO), grammar("hermes", REQUIRED), Grammar("regex", "a")):
        matcher = build(after_reasoning(made, block), native_tagged())
        options = allowed(matcher, tagged().get_vocab_size() + PADDING)
        assert not set(EOS) & set(options)
        assert tagged().token_to_id("</think>") in options
        assert max(options) < tagged().get_vocab_size()


def test_the_hermes_form_is_the_one_that_models_are_trained_on() -> None:
    matcher = build(grammar("hermes", REQUIRED))
    call = (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>'
    )
    other = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert accepts_text(matcher, call)
    assert accepts_text(matcher, f"{call}\n{other}\n{call}")
    assert not accepts_text(matcher, call.replace("3", "10"))
    assert not accepts_text(matcher, call.replace("Rome", "Birmingham"))
    assert not accepts_text(matcher, other.replace("{}", '{"zone": 1}'))
    assert not accepts_text(matcher, other.replace("now", "later"))
    assert not accepts_text(matcher, f"{other} and text")
    single = build(grammar("hermes", REQUIRED, parallel=False))
    assert not accepts_text(single, f"{call}\n{other}")


def test_tools_without_parameters_take_none() -> None:
    for parameters in (None, {}, {"type": "object", "properties": {}}):
        spec = ToolSpec("now", parameters=parameters)
        made = format_for(None).grammar([spec], REQUIRED, parallel=False)
        assert made is not None
        text = walk(build(made), demo(), random.Random(0))
        assert text == '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def test_an_object_of_arguments_is_closed_only_where_it_lists_them_all() -> None:
    closed = ToolSpec("f", parameters={"type": "object", "properties": {"a": {}}})
    assert closed.arguments_schema["additionalProperties"] is False
    for parameters in (
        {"type": "object", "required": ["x"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a", "x"]},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}},
        {"type": "object", "patternProperties": {"^k": {}}},
    ):
        assert ToolSpec("f", parameters=parameters).arguments_schema == parameters


CITY = Grammar("json_schema", json.dumps({
    "type": "object", "properties": {"name": {"const": "Rome"}}, "required": ["name"],
    "additionalProperties": False,
}))  # fmt: skip
ANSWERS = [
    (CITY, '{"name": "Rome"}', '{"name": "Bonn"}'),
    (Grammar("regex", r"a/b[\n/]\d"), "a/b\n7", "a/b 7"),
    (Grammar("lark", 'start: call\ncall: "yes" | "no"'), "yes", "perhaps"),
]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("answer", "good", "bad"), ANSWERS)
def test_an_output_is_calls_or_has_the_form_that_is_asked_for(
    answer: Grammar, good: str, bad: str, name: str, vocabulary: str
) -> None:
    tokenizer, native = (make() for make in VOCABULARIES[vocabulary])
    form = format_for(None, name)
    made = form.grammar(SPECS, AUTO, parallel=False, answer=answer)
    calls_only = build(grammar(name, ToolChoice("named", "now")), native)
    assert made is not None
    matcher = build(made, native)
    assert accepts_text(matcher, good, tokenizer)
    assert not accepts_text(matcher, bad, tokenizer)
    assert not accepts_text(matcher, "", tokenizer)
    call = walk(calls_only, tokenizer, random.Random(3))
    assert call is not None
    call = call if name != "llama3_json" else f"<|python_tag|>{call}"
    assert accepts_text(matcher, call, tokenizer)
    assert not accepts_text(matcher, f"Well, {call}", tokenizer)
    assert read(form.parser(SPECS), [good]) == [("text", good)]
    assert read(form.parser(SPECS), [call]) == [("call", "now", "{}")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_must_be_made_has_no_other_form(name: str) -> None:
    made = format_for(None, name).grammar(SPECS, REQUIRED, parallel=False, answer=CITY)
    assert made is not None
    assert not accepts_text(build(made), '{"name": "Rome"}')
