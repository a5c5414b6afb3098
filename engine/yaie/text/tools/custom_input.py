"""Tools whose input is free text: models call them as functions with one string, `input`.

`arguments_of` writes a call's arguments in that form, and `InputReader` reads the text back out of
arguments that arrive in pieces.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

FIELD: Final = "input"
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {FIELD: {"type": "string"}},
    "required": [FIELD],
    "additionalProperties": False,
}
_BEGINS: Final = f'{{"{FIELD}":"'
_OPEN: Final = re.compile(rf'\s*\{{\s*"{FIELD}"\s*:\s*"')
_COMPLETE: Final = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HALF: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
MAX_HEAD: Final = 64
"""Most characters before the text; more than that is no call in this form."""


def arguments_of(text: str) -> str:
    """Write the arguments of a call with this input."""
    return json.dumps({FIELD: text}, ensure_ascii=False)


class InputReader:
    """Reads one call's input. Arguments in any other form are taken for the input as they are."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "head"

    def push(self, arguments: str) -> str:
        """Add a piece of the arguments, and return the text that is now certain."""
        if self._state == "after":
            return ""
        self._held += arguments
        if self._state == "head":
            self._look()
        if self._state == "other":
            text, self._held = self._held, ""
            return text
        return self._string() if self._state == "string" else ""

    def _look(self) -> None:
        """Read up to the text's beginning."""
        if found := _OPEN.match(self._held):
            self._state, self._held = "string", self._held[found.end() :]
        elif len(self._held) > MAX_HEAD or not _BEGINS.startswith("".join(self._held.split())):
            self._state = "other"

    def _string(self) -> str:
        found = _COMPLETE.match(self._held)
        end = found.end() if found else 0
        rest = self._held[end:]
        if not rest.startswith('"') and (half := _HALF.search(self._held, 0, end)):
            end = half.start()  # the other half of the character may follow
        if rest.startswith('"'):
            self._state = "after"
        elif len(rest) > 5 or (len(rest) > 1 and rest[1] != "u"):
            self._state = "other"  # no escape of JSON
        text = _decoded(self._held[:end])
        self._held = self._held[end:]
        if self._state == "other":
            text, self._held = text + self._held, ""
        return text


def _decoded(escaped: str) -> str:
    text: str = json.loads(f'"{escaped}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
