# ruff: noqa: RUF001 - a family of models writes its tags with fullwidth bars

import pytest

from yaie.text.tools import FORMATS, ToolChoice, ToolSpec, format_for
from yaie_api.errors import InvalidRequestError

TEMPLATES = [
    ("hermes", '{%- if tools %}<tool_call>\n{"name": <function-name>}</tool_call>{% endif %}'),
    ("llama3_json", "{{ '<|python_tag|>' + tool_call.name }}"),
    ("llama3_json", 'Respond in the format {"name": x, "parameters": y} {% if "ipython" %}'),
    ("mistral", "{{ '[TOOL_CALLS] [' }}"),
    ("mistral_args", "{{ '[TOOL_CALLS]' + name + '[ARGS]' }}"),
    ("deepseek_v3", "<｜tool▁calls▁begin｜>{{ '```json' }}"),
    ("deepseek_v31", "<｜tool▁calls▁begin｜>"),
]


@pytest.mark.parametrize(("name", "template"), TEMPLATES)
def test_the_format_is_the_one_that_the_template_writes(name: str, template: str) -> None:
    found = format_for(template)
    assert (found.name, found.in_template) == (name, True)


@pytest.mark.parametrize(
    "template",
    [None, "{{ messages }}", "<tool_call><function=f><parameter=x>", "<tool_call>f<arg_key>x"],
)
def test_templates_that_write_no_known_form_get_the_hermes_form(template: str | None) -> None:
    found = format_for(template)
    assert (found.name, found.in_template) == ("hermes", False)


def test_a_format_can_be_named() -> None:
    assert format_for("<tool_call>", "mistral").name == "mistral"
    with pytest.raises(InvalidRequestError) as caught:
        format_for(None, "klingon")
    assert caught.value.param == "tool_call_parser"
    assert all(name in caught.value.message for name in FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_must_be_of_a_tool_that_exists(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        format_for(None, name).grammar([ToolSpec("f")], ToolChoice("named", "g"), parallel=True)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("mode", ["auto", "required", "named"])
def test_a_strict_schema_that_cannot_be_honoured_is_refused(mode: str) -> None:
    spec = ToolSpec("f", parameters={"not": {"type": "object"}}, strict=True)
    with pytest.raises(InvalidRequestError) as caught:
        format_for(None).grammar([spec], ToolChoice(mode, "f"), parallel=True)  # type: ignore[arg-type]  # each mode
    assert caught.value.param == "tools"
    assert "'not'" in caught.value.message
    assert "'f'" in caught.value.message


def test_where_the_model_decides_a_difficult_schema_is_any_object() -> None:
    spec = ToolSpec("f", parameters={"type": "object", "not": {"required": ["x"]}})
    grammar = format_for(None).grammar([spec], ToolChoice(), parallel=True)
    assert grammar is not None
    assert '"type": "object"' in grammar.text
    assert "not" not in grammar.text


def test_no_tools_need_no_grammar() -> None:
    assert format_for(None).grammar([], ToolChoice(), parallel=True) is None
