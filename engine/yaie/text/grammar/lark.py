"""Pieces of grammars in llguidance's dialect of Lark, for the HTTP process and the engine alike."""

import json
from collections.abc import Mapping
from typing import Any, Final

JSON_STYLE: Final = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
}
"""One optional blank after a comma or colon and no other: weak models write blanks without end.
In every schema it takes the place of what the user may have written under this key.
"""


def literal(text: str) -> str:
    """Exactly this text. Strings of the dialect know few escapes, patterns know code points."""
    if text.isascii() and text.isprintable():
        return json.dumps(text) if text else ""
    return f"/{''.join(map(code_point, text))}/"


def code_point(character: str) -> str:
    """A character inside a pattern."""
    return character if character.isalnum() else f"\\x{{{ord(character):X}}}"


def json_value(schema: Mapping[str, Any] | bool) -> str:  # noqa: FBT001 - a schema may be true or false
    """A JSON value that the schema allows."""
    return "%json " + json.dumps(styled(schema), ensure_ascii=False)


def styled(schema: Mapping[str, Any] | bool) -> dict[str, Any]:  # noqa: FBT001 - a schema may be true or false
    """The schema with our way to write JSON."""
    if schema is True:
        return dict(JSON_STYLE)
    return {**({"allOf": [False]} if schema is False else schema), **JSON_STYLE}
