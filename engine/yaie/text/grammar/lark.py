"""Pieces of grammars in llguidance's dialect of Lark, for the HTTP process and the engine."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

JSON_STYLE: Final = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
}
"""Allows only one optional space after a comma or colon, because weak models write spaces without
end. It replaces what a user's schema may have under this key.
"""

_UNESCAPED: Final = re.compile(r"(\\.)|[/\n]", re.DOTALL)


def literal(text: str) -> str:
    """Lark for exactly this text: a string if it is printable ASCII, else a pattern of code points,
    because strings of the dialect support few escapes.
    """
    if text.isascii() and text.isprintable():
        return json.dumps(text) if text else ""
    return f"/{''.join(map(code_point, text))}/"


def code_point(character: str) -> str:
    """Lark for one character inside a pattern."""
    return character if character.isalnum() else f"\\x{{{ord(character):X}}}"


def json_value(schema: Mapping[str, Any] | bool) -> str:  # noqa: FBT001 - a schema may be true or false
    """Lark for a JSON value that matches the schema."""
    return "%json " + json.dumps(styled(schema), ensure_ascii=False)


def nested(kind: Literal["json_schema", "regex", "lark"], text: str) -> str:
    """Lark for a grammar of any kind inside a rule. Its names do not clash with those outside."""
    match kind:
        case "json_schema":
            return json_value(json.loads(text))
        case "regex":
            return f"/{_UNESCAPED.sub(_escaped, text)}/"
        case "lark":
            return f"%lark {{\n{text}\n}}"


def _escaped(found: re.Match[str]) -> str:
    """Escape what would end a pattern; what is escaped already stays."""
    return found[1] or {"/": "\\/", "\n": "\\n"}[found[0]]


def string_field(name: str, inner: str) -> str:
    """Lark for an object with one field, a string. `inner`: a grammar of what is between its
    quotes, with a rule `start`; its names do not clash with those outside.
    """
    return f'{literal(json.dumps({name: ""})[:-4])} / ?"/ %lark {{\n{inner}\n}} /"\\}}/'


def styled(schema: Mapping[str, Any] | bool) -> dict[str, Any]:  # noqa: FBT001 - a schema may be true or false
    """The schema with `JSON_STYLE`."""
    if schema is True:
        return dict(JSON_STYLE)
    return {**({"allOf": [False]} if schema is False else schema), **JSON_STYLE}


def regular_rules(references: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The rules that refer only to characters and to other such rules, directly or not.

    `references`: the names that a rule's body has, by the rule's name; one that is no rule counts
    as one that is not regular.
    """
    users: dict[str, list[str]] = {name: [] for name in references}
    open_references = {name: set(found) for name, found in references.items()}
    for name, found in open_references.items():
        for reference in found:
            users.setdefault(reference, []).append(name)
    ready = [name for name, found in open_references.items() if not found]
    known: set[str] = set()
    while ready:
        name = ready.pop()
        known.add(name)
        for user in users[name]:
            open_references[user].discard(name)
            if not open_references[user]:
                ready.append(user)
    return frozenset(known)
