"""Generates the OpenAPI document from the table of endpoints.

The schemas of request bodies are those of the types that check requests. Streams are listed beside
JSON, and every status that an endpoint can answer with is listed with its error envelope.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from yaie.server.routes import Endpoint
from yaie_api import __version__
from yaie_api.http.words import EXAMPLES, WORDS

ERRORS: Final = {
    400: "The request is wrong as it is written; the message says what to change.",
    401: "A key is required and was missing or wrong.",
    404: "No such model.",
    408: "The body came too slowly.",
    413: "Too large.",
    415: "The body is compressed: send it as it is.",
    429: "The queue is full: try again after `Retry-After` seconds.",
    500: "The engine failed on this request; others go on.",
    503: "No engine can take the request now: try again after `Retry-After` seconds.",
    504: "The request's time was over before it ended.",
}
_FOR_GET: Final = (401, 413, 500)
_REFERENCE: Final = "#/components/schemas/{model}"
ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


ANTHROPIC_ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": "string"},
    },
}
EVENT_SCHEMA: Final = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}
"""The schema of one event: before OpenAPI 3.2, the schema of a stream describes its events."""
ERROR_SCHEMAS: Final = {"Error": ERROR_SCHEMA, "AnthropicError": ANTHROPIC_ERROR_SCHEMA}


def document(endpoints: Iterable[Endpoint], title: str = "yaie engine") -> dict[str, Any]:
    """Return the document for these endpoints."""
    endpoints = tuple(endpoints)
    bodies = [(one.body, "validation") for one in endpoints if one.body is not None]
    _, schemas = models_json_schema(
        list(dict.fromkeys(bodies)),  # type: ignore[arg-type]  # the mode is a literal
        ref_template=_REFERENCE,
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        for path in one.paths:
            shown = re.sub(r"{(\w+):\w+}", r"{\1}", path)
            paths.setdefault(shown, {})[one.method.lower()] = _operation(one, shown)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "tags": [{"name": tag} for tag in dict.fromkeys(one.tag for one in endpoints)],
        "paths": paths,
        "components": {
            "schemas": _described(schemas.get("$defs", {})) | ERROR_SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"header": []}],
    }


def _described(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas, each field with the words that the reference page has for it."""
    for kind, schema in schemas.items():
        if not kind.endswith("Request"):
            continue
        for name, field in schema["properties"].items():
            field["description"] = WORDS.get(f"{kind}.{name}") or WORDS[name]
    return schemas


def _operation(one: Endpoint, path: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [one.tag],
        "summary": one.summary,
        "operationId": f"{one.method.lower()}{re.sub(r'[^a-z0-9]+', '_', path.lower())}",
        "responses": {"200": _answer(one)} | _errors(one),
    }
    if one.body is not None:
        schema = {"$ref": _REFERENCE.format(model=one.body.__name__)}
        example = {"model": "MODEL"} | EXAMPLES[one.body.__name__]
        content = {"application/json": {"schema": schema, "example": example}}
        operation["requestBody"] = {"required": True, "content": content}
    if names := re.findall(r"{(\w+)}", path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return operation


def _answer(one: Endpoint) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if one.media == "application/json":
        schema = {"type": "object"}
        if one.answer:
            schema["required"] = list(one.answer)
    content = {one.media: {"schema": schema}}
    if one.streams:
        content["text/event-stream"] = {"schema": EVENT_SCHEMA}
    return {"description": "The answer.", "content": content}


def _errors(one: Endpoint) -> dict[str, Any]:
    statuses = [status for status in ERRORS if status in _FOR_GET or one.body is not None]
    if one.needs_model and one.body is None:
        statuses += [404, 503]
    if one.method == "POST" and one.body is None:
        statuses += [400]
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=one.error)}}}
    return {
        str(status): {"description": ERRORS[status], "content": content}
        for status in sorted(statuses)
    }
