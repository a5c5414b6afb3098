"""Reads the comments of the chart's values.yaml, the one place where a value is explained.

`tools/render_manifests.py` puts them into the table of the chart's README and, as descriptions,
into values.schema.json.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_KEY = re.compile(r"( *)([A-Za-z]\w*):")


def comments(text: str) -> dict[str, str]:
    """The comment above each key, by the key's path (`images.engine.tag`), on one line."""
    found: dict[str, str] = {}
    above: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("#"):
            above.append(words.removeprefix("#").strip())
            continue
        key = _KEY.match(line)
        if key and above:
            path = [*path[: len(key[1]) // 2], key[2]]
            found[".".join(path)] = " ".join(above)
        above = []
    return found


def table(schema: Mapping[str, Any], values: str) -> str:
    """One row for each value: its name, default and meaning.

    Raises:
        ValueError: a value has no comment.

    """
    defaults = yaml.safe_load(values)
    told = comments(values)
    rows = [
        f"| `{path}` | `{json.dumps(_at(defaults, path))}` | {_told(told, path)} |"
        for path, node in nodes(schema)
        if "properties" not in node
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def with_descriptions(schema: Mapping[str, Any], values: str) -> str:
    """The schema with each value's comment as its description.

    Raises:
        ValueError: a value has no comment.

    """
    told = comments(values)
    whole = json.loads(json.dumps(schema))
    for path, node in nodes(whole):
        rest = {key: value for key, value in node.items() if key != "description"}
        node.clear()
        node.update({"description": _told(told, path), **rest})
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def nodes(schema: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Every value and group of values of the schema. What stands in a definition is one value."""
    for name, node in schema["properties"].items():
        if f"{at}{name}" == "global":
            continue  # what Helm itself wants there
        yield f"{at}{name}", node
        if "properties" in node:
            yield from nodes(node, f"{at}{name}.")


def _told(told: Mapping[str, str], path: str) -> str:
    if path not in told:
        raise ValueError(f"values.yaml: {path} has no comment above it")
    return told[path]


def _at(defaults: Any, path: str) -> Any:
    for step in path.split("."):
        defaults = defaults[step]
    return defaults
