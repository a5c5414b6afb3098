"""The OpenAPI document is checked against itself and against the table it is written from."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from yaie.server.routes import ENDPOINTS
from yaie.server.web.openapi import ERRORS, document
from yaie_api.http.wire import parse


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return json.loads(json.dumps(document(ENDPOINTS)))  # it must be JSON


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    found = set(references(described))
    assert found
    for reference in found:
        target: Any = described
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_every_endpoint_is_there_under_each_of_its_paths(described: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        for path in endpoint.paths:
            operations = described["paths"][path.replace(":path", "")]
            assert endpoint.method.lower() in operations


def test_operations_have_names_of_their_own(described: dict[str, Any]) -> None:
    names = [o["operationId"] for path in described["paths"].values() for o in path.values()]
    assert len(names) == len(set(names))


def test_streams_are_named_beside_json(described: dict[str, Any]) -> None:
    answer = described["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]
    assert set(answer["content"]) == {"application/json", "text/event-stream"}


def test_each_error_has_the_one_envelope(described: dict[str, Any]) -> None:
    responses = described["paths"]["/v1/embeddings"]["post"]["responses"]
    assert set(responses) == {"200", *map(str, ERRORS)}
    for status in set(responses) - {"200"}:
        schema = responses[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Error"}


def test_every_field_of_a_body_is_explained(described: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.body is not None:
            schema = described["components"]["schemas"][endpoint.body.__name__]
            assert all(field["description"] for field in schema["properties"].values())


def test_the_example_of_each_body_is_one(described: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.body is not None:
            operation = described["paths"][endpoint.paths[0]]["post"]
            example = operation["requestBody"]["content"]["application/json"]["example"]
            assert parse(endpoint.body, example).model == "MODEL"  # type: ignore[type-var, attr-defined]


def test_each_operation_has_one_of_the_tags(described: dict[str, Any]) -> None:
    tags = [tag["name"] for tag in described["tags"]]
    operations = [one for path in described["paths"].values() for one in path.values()]
    assert {tag for one in operations for tag in one["tags"]} == set(tags)
    assert all(len(one["tags"]) == 1 for one in operations)
