"""Writes docs/api.md: every path and field of the API, from the tables that serve it.

    yaie.server.routes, admin    ─▶ the paths
    yaie_api.errors              ─▶ the errors
    the bodies' types            ─▶ fields, types, defaults, limits
    their own refusals           ─▶ what is refused, in the words that a client gets
    yaie_api.http.words          ─▶ what a field means

`--check` writes nothing and fails when the page is stale.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie.server import admin
from yaie.server.routes import ENDPOINTS, Endpoint
from yaie_api import errors
from yaie_api.errors import InvalidRequestError
from yaie_api.http import anthropic, pooling, responses
from yaie_api.http.openai import CONSTRAINTS, FORMATS, IGNORED, NOT_IMPLEMENTED, GenerationRequest
from yaie_api.http.wire import MAX_CONTAINERS, MAX_DEPTH, MAX_FIELDS, Wire
from yaie_api.http.words import WORDS
from yaie_router import routes

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = f"""\
# API reference

Every path and field that an engine serves: for people who write a client, or wonder what became of
a field. How to use them, with examples, is in [serving.md](serving.md). `GET /openapi.json` says
the same to programs, and `/docs` shows it. `tools/render_api.py` writes this page; do not edit it.

A null means that a field is left out. A field that is in no table here is accepted, has no effect,
and is counted in `yaie_engine_unknown_fields_total`. A body holds at most {MAX_FIELDS} fields,
{MAX_DEPTH} levels of nesting, and {MAX_CONTAINERS:,} lists and objects at one level.
"""
CANDIDATES = sorted(
    {*NOT_IMPLEMENTED, *FORMATS, *CONSTRAINTS, "output_format"}
    | {*pooling.NOT_SERVED, *responses.NOT_HERE, *anthropic.NOT_HERE}
)
ROUTED = {*routes.FORWARDED, *routes.OTHERS}
WIDEST = {2**63 - 1, -(2**63), 2**31 - 1, 2**31, -(2**31)}
"""Limits that only keep numbers inside a machine word."""
ASKS = object()
"""A value that no table of harmless values holds."""


def page() -> str:
    """The whole page."""
    kinds = list(dict.fromkeys(one.body for one in ENDPOINTS if one.body is not None))
    _, found = models_json_schema([(kind, "validation") for kind in kinds])
    schemas = found["$defs"]
    bodies = {kind.__name__ for kind in kinds}
    _check_words({f"{k.__name__}.{f}" for k in kinds for f in schemas[k.__name__]["properties"]})
    parts = [HEAD, *_paths(), *_errors()]
    for one in ENDPOINTS:
        if one.body is not None:
            parts += _body(one, one.body, schemas)
    parts.append("## Objects\n\nWhat the fields above are made of.\n")
    for name in sorted(schemas.keys() - bodies):
        parts += [f"### {name}\n", *_object(schemas[name])]
    return "\n".join(parts).rstrip() + "\n"


def _paths() -> Iterator[str]:
    yield "## Paths\n"
    yield "*Router*: whether the router of a namespace, or of `yaie up`, takes the path too.\n"
    yield "| method | path | what | streams | router |"
    yield "|---|---|---|---|---|"
    for one in ENDPOINTS:
        shown = [_shown(path) for path in one.paths]
        link = f"[{one.summary}](#{_anchor(_title(one))})" if one.body else one.summary
        yield (
            f"| {one.method} | {', '.join(f'`{path}`' for path in shown)} | {link} "
            f"| {_yes(one.streams)} | {_yes(any(path in ROUTED for path in shown))} |"
        )
    yield ""
    yield (
        "The router has `/livez`, "
        "`/readyz`, `/health`, `/version`, `/openapi.json` and the pages\n`/` and `/docs` of its "
        "own, and `/metrics` on a port of its own. An engine has these on its admin port "
        "(`--admin-port`):\n"
    )
    yield "| method | path | what |"
    yield "|---|---|---|"
    for one in admin.ENDPOINTS:
        paths = ", ".join(f"`{path}`" for path in one.paths)
        yield f"| {one.method} | {paths} | {one.summary} |"
    yield ""


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield (
        'Every error is `{"error": {message, type, param, code}}`, or Anthropic\'s envelope under\n'
        "`/v1/messages`. 429 and 503 carry `Retry-After`.\n"
    )
    yield "| status | type | code, unless a closer one | what |"
    yield "|---|---|---|---|"
    for kind in sorted(_kinds_of_error(), key=lambda one: one.status):
        code = f"`{kind.default_code}`" if kind.default_code else ""
        what = " ".join((kind.__doc__ or "").split())
        yield f"| {kind.status} | `{kind.type}` | {code} | {what} |"
    yield ""


def _kinds_of_error() -> list[type[errors.YaieError]]:
    found = [one for one in vars(errors).values() if isinstance(one, type)]
    return [one for one in found if errors.YaieError in one.__mro__[1:]]


def _body(one: Endpoint, kind: type[BaseModel], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {_title(one)}\n"
    if len(one.paths) > 1:
        yield f"{one.summary}. Also {', '.join(f'`{path}`' for path in one.paths[1:])}.\n"
    else:
        yield f"{one.summary}.\n"
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    schema = schemas[kind.__name__]
    needed = schema.get("required", ())
    for name, field in sorted(schema["properties"].items(), key=lambda p: p[0] not in needed):
        yield _row(name, field, words(kind.__name__, name), needed=name in needed)
    yield ""
    if issubclass(kind, GenerationRequest):
        others = [name for name in FORMATS if name not in kind.model_fields]
        yield f"**Other spellings of `response_format`, honoured**: {_list(others)}.\n"
        quiet = sorted(IGNORED - kind.model_fields.keys())
        yield f"**Accepted without effect, not counted**: {_list(quiet)}.\n"
    yield from _refused(kind)


def _refused(kind: type[BaseModel]) -> Iterator[str]:
    by_answer: dict[str, list[str]] = {}
    for name, message in refusals(kind):
        by_answer.setdefault(message.removeprefix(f"{name} "), []).append(name)
    if not by_answer:
        return
    yield "**Refused** with 400, unless the value asks for nothing:\n"
    yield "| field | what the answer says of it |"
    yield "|---|---|"
    yield from (f"| {_list(names)} | {answer} |" for answer, names in by_answer.items())
    yield ""


def refusals(kind: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Fields that this kind of request refuses when they ask for something, with its words."""
    assert issubclass(kind, Wire)
    for name in CANDIDATES:
        if name in kind.model_fields:
            continue
        try:
            kind.refuse({name: ASKS})
        except InvalidRequestError as error:
            yield name, error.message


def _object(schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"{' '.join(schema['description'].split())}\n"
    yield "| field | type | default |"
    yield "|---|---|---|"
    for field, described in schema["properties"].items():
        required = field in schema.get("required", ())
        yield f"| `{field}` | {_type(described)} | {_default(described, needed=required)} |"
    yield ""


def _row(name: str, field: Mapping[str, Any], meaning: str, *, needed: bool) -> str:
    return f"| `{name}` | {_type(field)} | {_default(field, needed=needed)} | {meaning} |"


def words(kind: str, name: str) -> str:
    """What a field means. Raises KeyError when nobody has said it."""
    return WORDS.get(f"{kind}.{name}") or WORDS[name]


def _check_words(fields: set[str]) -> None:
    """Raise KeyError for words about a field that is gone."""
    known = fields | {field.partition(".")[2] for field in fields}
    if gone := WORDS.keys() - known:
        raise KeyError(f"words without a field: {', '.join(sorted(gone))}")


def _type(field: Mapping[str, Any]) -> str:
    choices = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
    return " or ".join(dict.fromkeys(map(_one_type, choices)))


def _one_type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "const" in field or "enum" in field:
        return ", ".join(f"`{json.dumps(v)}`" for v in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any value")
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}{_limits(field)}"
    return f"{kind}{_limits(field)}"


def _limits(field: Mapping[str, Any]) -> str:
    found = [
        text.format(field[key])
        for key, text in (
            ("minimum", "≥ {}"), ("maximum", "≤ {}"), ("minItems", "≥ {}"), ("maxItems", "≤ {}"),
            ("maxLength", "≤ {} characters"), ("maxProperties", "≤ {}"),
        )
        if key in field and field[key] not in WIDEST
    ]  # fmt: skip
    return f" ({', '.join(found)})" if found else ""


def _default(field: Mapping[str, Any], *, needed: bool) -> str:
    if needed:
        return "required"
    return "" if field.get("default") is None else f"`{json.dumps(field['default'])}`"


def _title(one: Endpoint) -> str:
    return f"{one.method} {_shown(one.paths[0])}"


def _shown(path: str) -> str:
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)


def _anchor(title: str) -> str:
    """The address of a heading, as hosting services make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _yes(fact: bool) -> str:  # noqa: FBT001 - a cell
    return "yes" if fact else ""


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))
