from typing import Any

import pytest

from yaie.text.grammar.schema import MAX_SCHEMA_BYTES, check_schema, is_plain
from yaie_api.errors import InvalidRequestError


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def refused(schema: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_schema(schema, param="response_format")
    assert caught.value.param == "response_format"
    return caught.value.message


def test_what_only_describes_is_left_out_wherever_it_stands() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/a",
        "title": "T",
        "type": "object",
        "properties": {"title": {"type": "string", "description": "d", "default": 1}},
        "$defs": {"x": {"x-order": 3, "examples": [1], "enum": [{"title": 1}]}},
        "x-guidance": {"lenient": True},
        "_order": [1],
    }
    assert check_schema(schema, param="p") == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "$defs": {"x": {"enum": [{"title": 1}]}},
    }


@pytest.mark.parametrize(
    "keyword",
    ["not", "if", "contains", "uniqueItems", "dependentRequired", "propertyNames", "divisibleBy"],
)
@pytest.mark.parametrize("place", ["root", "property", "definition", "item", "alternative"])
def test_an_unsupported_keyword_is_named_wherever_it_stands(keyword: str, place: str) -> None:
    bad = {keyword: True if keyword == "uniqueItems" else {"type": "string"}}
    schema: dict[str, Any] = {
        "root": bad,
        "property": {"properties": {"a": bad}},
        "definition": {"definitions": {"a": bad}},
        "item": {"prefixItems": [True, bad]},
        "alternative": {"anyOf": [{"additionalProperties": bad}]},
    }[place]
    assert repr(keyword) in refused(schema)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "https://example.com/x.json"}, "https://example.com/x.json"),
        ({"$ref": "other.json#/a"}, "references inside it"),
        ({"type": "strng"}, "'strng'"),
        ({"type": []}, "types are"),
        ({"type": "string", "format": "regex"}, "'regex'"),
        ({"type": "string", "format": "datetime"}, "'date-time'"),
        ({"requierd": ["a"]}, "'required'"),
        ({"type": "string", "minlength": 3}, "'minLength'"),
        ({"properties": {"a": {"addtionalProperties": False}}}, "'additionalProperties'"),
        ({"type": "string", "pattern": 3}, "pattern"),
        ({"type": "string", "pattern": "a\\"}, "escape"),
        ({"patternProperties": {"\\\\\\": True}}, "escape"),
        ({"format": {}}, "format"),
        ({"format": [{}]}, "format"),
        ({"type": "string", "pattern": "a" * 5000}, "4096"),
        ({"patternProperties": {"a" * 5000: True}}, "4096"),
        ({"properties": {"a": 3}}, "#/properties/a"),
        ({"properties": []}, "object"),
        ({"anyOf": {}}, "list"),
        ({"properties": {"a": {"$id": "https://example.com/b", "$ref": "#/x"}}}, "'$id'"),
        ("text", "object or a boolean"),
        (None, "object or a boolean"),
        (nested(33), "32 levels"),
        ({"enum": ["x" * MAX_SCHEMA_BYTES]}, str(MAX_SCHEMA_BYTES)),
        ({f"word {i}": True for i in range(65)}, "more than 64 keywords that no draft knows"),
        ({"const": "\ud800"}, "not JSON"),
        ({"const": float("nan")}, "not JSON"),
    ],
)
def test_a_wrong_schema_is_refused_in_words(schema: Any, words: str) -> None:
    assert words in refused(schema)


def test_keywords_that_allow_everything_are_no_reason_to_refuse() -> None:
    schema = {"type": "array", "uniqueItems": False, "items": {"nullable": False}}
    assert check_schema(schema, param="p") == {"type": "array", "items": {}}


def test_words_that_no_draft_knows_only_describe() -> None:
    schema = {"type": "string", "faker": {"not": 1}, "options": [], "format": "mongo-id"}
    assert check_schema(schema, param="p") == {"type": "string"}


def test_many_words_that_are_no_misspelt_ones_only_describe() -> None:
    schema = {f"x-{i}": 1 for i in range(100)} | {f"{i}{'long' * 9}": 1 for i in range(100)}
    assert check_schema(schema, param="p") == {}


def test_formats_of_numbers_say_how_they_are_stored() -> None:
    assert check_schema({"type": "integer", "format": "int64"}, param="p") == {"type": "integer"}


def test_bounds_of_draft_4_are_read() -> None:
    schema = {"minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    assert check_schema(schema, param="p") == {"exclusiveMinimum": 1, "maximum": 9}


def test_depth_is_counted_in_schemas() -> None:
    assert check_schema(nested(32), param="p") == nested(32)


def test_plain_schemas_are_those_that_always_work() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1]}}}}
    assert is_plain(plain)
    assert is_plain({**plain, "additionalProperties": False})
    for bad in ({"oneOf": []}, {"type": ["string", "null"]}, {"required": True}, {"not": {}}, 3):
        assert not is_plain({"type": "object", "properties": {"a": bad}})
    assert not is_plain({"enum": ["x" * 5000]})
