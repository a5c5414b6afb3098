"""Pieces of grammars in llguidance's dialect of Lark, for the HTTP process and the engine."""

import json
from collections.abc import Mapping
from typing import Any, Final

JSON_STYLE: Final = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
}
"""Allows only one optional space after a comma or colon, because weak models write spaces without
end. It replaces what a user's schema may have under this key.
"""


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


def styled(schema: Mapping[str, Any] | bool) -> dict[str, Any]:  # noqa: FBT001 - a schema may be true or false
    """The schema with `JSON_STYLE`."""
    if schema is True:
        return dict(JSON_STYLE)
    return {**({"allOf": [False]} if schema is False else schema), **JSON_STYLE}
