"""Reads users' YAML files and reports problems by line.

`load` returns documents whose InferenceModels are valid; the command line and the local adapter use
it. CEL rules, which need the whole object, are checked when the object is stored.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import yaml
from pydantic import Field, ValidationError

from yaie_api import names
from yaie_api.resource.model import InferenceModelSpec
from yaie_api.resource.schema import REFUSED_KEY, WORDS, Part

Path = tuple[str | int, ...]


class ManifestError(Exception):
    """An invalid file. The message has one line per problem: `FILE:LINE: field: problem`."""


@dataclass(frozen=True)
class Document:
    """One object of a file, and the line at which it begins."""

    object: Mapping[str, Any]
    line: int


@dataclass(frozen=True)
class _Parsed:
    """A document as plain data, with the line of each of its fields."""

    data: Any
    line: int
    lines: Mapping[Path, int]


class _Metadata(Part):
    """The part of metadata that users write."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class _Envelope(Part):
    """A whole InferenceModel in a file."""

    api_version: str
    kind: str
    metadata: _Metadata
    spec: InferenceModelSpec


MAX_FIELDS: Final = 100_000
MAX_DEPTH: Final = 64
"""Limits against YAML aliases, which can expand a small file to any size."""
_PLAIN_TAGS: Final = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

KUBECTL_FIELDS: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp"})
"""Fields of metadata that `kubectl get -o yaml` adds; they are accepted and ignored."""


def load(text: str, *, filename: str, kinds: Iterable[str] = (names.KIND,)) -> list[Document]:
    """Parse and check the documents of a YAML file.

    Raises:
        ManifestError: the file is not YAML or has other problems; the error lists all of them.

    """
    try:
        nodes = yaml.compose_all(text, Loader=yaml.SafeLoader)
        parsed = [item for node in nodes if (item := _parse(node)).data is not None]
    except RecursionError:
        raise ManifestError(f"{filename}:1: not YAML: nested too deeply") from None
    except yaml.YAMLError as error:
        raise ManifestError(f"{filename}:{_yaml_line(error)}: not YAML: {_first(error)}") from None
    problems = [
        f"{filename}:{line}: {what}"
        for document in parsed
        for line, what in _problems(document, frozenset(kinds))
    ]
    if not parsed:
        problems = [f"{filename}:1: the file holds no object"]
    if problems:
        raise ManifestError("\n".join(problems))
    return [Document(document.data, document.line) for document in parsed]


def _parse(node: yaml.Node) -> _Parsed:
    lines: dict[Path, int] = {}
    return _Parsed(_plain(node, (), lines), node.start_mark.line + 1, lines)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    """Convert a node to plain data, and record the line of each key and item in `lines`."""
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > MAX_FIELDS or len(path) > MAX_DEPTH:
        raise _wrong(node, "an object that unfolds to too many or too deep fields")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
        raise _wrong(node, f"the tag {node.tag}")
    if isinstance(node, yaml.MappingNode):
        return {key: _plain(value, (*path, key), lines) for key, value in _pairs(node, path, lines)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), lines) for i, item in enumerate(node.value)]
    return _scalar(node)


def _pairs(
    node: yaml.MappingNode, path: Path, lines: dict[Path, int]
) -> Iterable[tuple[str, yaml.Node]]:
    seen: set[str] = set()
    for key_node, value in node.value:
        key = str(_scalar(key_node))
        if key in seen:
            raise _wrong(key_node, f"`{key}` twice")
        seen.add(key)
        lines[*path, key] = key_node.start_mark.line + 1
        yield key, value


def _scalar(node: yaml.Node) -> Any:
    """The value of a scalar by YAML's rules, but a date stays text."""
    if not isinstance(node, yaml.ScalarNode):
        raise _wrong(node, "a key that is no text")
    if node.tag == "tag:yaml.org,2002:timestamp":
        return node.value
    constructor = yaml.constructor.SafeConstructor()
    return constructor.construct_object(node)


def _wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _problems(document: _Parsed, kinds: frozenset[str]) -> list[tuple[int, str]]:
    if not isinstance(document.data, dict):
        return [(document.line, "an object is expected: apiVersion, kind, metadata, spec")]
    kind = document.data.get("kind")
    if kind not in kinds:
        line = document.lines.get(("kind",), document.line)
        return [(line, f"kind: {kind!r} is not served here; write {' or '.join(sorted(kinds))}")]
    if kind != names.KIND:
        return []
    if document.data.get("apiVersion") != names.API_VERSION:
        line = document.lines.get(("apiVersion",), document.line)
        return [(line, f"apiVersion: write {names.API_VERSION}")]
    return _model_problems(document)


def _model_problems(document: _Parsed) -> list[tuple[int, str]]:
    data = {key: value for key, value in document.data.items() if key != "status"}
    if isinstance(metadata := data.get("metadata"), dict):
        data["metadata"] = {k: v for k, v in metadata.items() if k not in KUBECTL_FIELDS}
    try:
        _Envelope.model_validate(data)
    except ValidationError as error:
        return [
            (_line(document, item["loc"]), f"{_dotted(item['loc'])}: {_message(item)}")
            for item in error.errors(include_url=False)
        ]
    return []


def _line(document: _Parsed, path: Path) -> int:
    """Line of the field, or of the nearest enclosing object that is in the file."""
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines.get(path, document.line)


def _message(item: Mapping[str, Any]) -> str:
    """Convert pydantic's error to a message for people who write YAML."""
    if item["type"] == "extra_forbidden":
        part = _part_at(item["loc"][:-1])
        if (instead := _refused(part, str(item["loc"][-1]))) is not None:
            return instead
        close = difflib.get_close_matches(str(item["loc"][-1]), _known(item["loc"][:-1]), n=1)
        return "unknown field" + (f"; did you mean `{close[0]}`?" if close else "")
    if item["type"] == "missing":
        return "this field is required"
    if words := WORDS.get(item.get("ctx", {}).get("pattern", "")):
        return f"write {words} (got {item['input']!r})"[:300]
    text = str(item["msg"]).replace("a valid tuple", "a list")
    return text[:1].lower() + text[1:] + f" (got {item['input']!r})"[:120]


def _known(path: Path) -> list[str]:
    """Names of the fields of the object at `path`."""
    part = _part_at(path)
    return [field.alias or name for name, field in part.model_fields.items()] if part else []


def _part_at(path: Path) -> type[Part] | None:
    part: type[Part] | None = _Envelope
    for step in path:
        if isinstance(step, int) or part is None:
            continue
        part = _child(part, step)
    return part


def _refused(part: type[Part] | None, name: str) -> str | None:
    """What to write instead of a field that is refused by name."""
    extra: Any = part.model_config.get("json_schema_extra") if part is not None else None
    refused: Mapping[str, tuple[str, str]] = (extra or {}).get(REFUSED_KEY, {})
    return refused[name][1] if name in refused else None


def _child(part: type[Part], name: str) -> type[Part] | None:
    for field_name, field in part.model_fields.items():
        if name in {field_name, field.alias}:
            return _part_of(field.annotation)
    return None


def _part_of(annotation: Any) -> type[Part] | None:
    """The Part inside `X`, `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next((p for a in get_args(annotation) if (p := _part_of(a))), None)


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "the object"


def _yaml_line(error: yaml.YAMLError) -> int:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else 1


def _first(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]
