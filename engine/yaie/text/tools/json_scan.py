"""Finds the end of a JSON value whose text arrives in pieces. Each character is read once."""

import re
from typing import Final

_CLOSING: Final = {"{": "}", "[": "]"}
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"{}\[\]]*')
_STRING: Final = re.compile(r'[^"\\]*')
_SCALAR: Final = re.compile(r"[-+.0-9A-Za-z]*")


def skip_blanks(text: str, start: int) -> int:
    """Index of the first character from `start` on that is not whitespace."""
    found = _BLANKS.match(text, start)
    return found.end() if found else start


class ValueScanner:
    """Scans one value. The text must begin with the value, without whitespace before it.

    Attributes:
        done: whether the value is complete.
        broken: whether the text is not a JSON value. Only brackets and strings are checked.

    """

    __slots__ = ("_closers", "_escaped", "_in_string", "_is_scalar", "_started", "broken", "done")

    def __init__(self) -> None:
        self._closers: list[str] = []
        self._in_string = False
        self._escaped = False
        self._is_scalar = False
        self._started = False
        self.done = False
        self.broken = False

    def push(self, text: str, start: int) -> int:
        """Read on from `start`; returns the index after the text that belongs to the value."""
        position = start
        while position < len(text) and not (self.done or self.broken):
            if self._in_string:
                position = self._string(text, position)
            elif self._is_scalar:
                position = self._scalar(text, position)
            else:
                position = self._structure(text, position)
        return position

    def _string(self, text: str, position: int) -> int:
        if self._escaped:
            self._escaped = False
            return position + 1
        found = _STRING.match(text, position)
        position = found.end() if found else position
        if position < len(text):
            if text[position] == "\\":
                self._escaped = True
            else:
                self._in_string = False
                self.done = not self._closers
            position += 1
        return position

    def _scalar(self, text: str, position: int) -> int:
        found = _SCALAR.match(text, position)
        position = found.end() if found else position
        self.done = position < len(text)
        return position

    def _structure(self, text: str, position: int) -> int:
        if self._closers:
            found = _PLAIN.match(text, position)
            position = found.end() if found else position
            if position == len(text):
                return position
        character = text[position]
        if character == '"':
            self._in_string = True
        elif character in _CLOSING:
            self._closers.append(_CLOSING[character])
        elif self._closers:
            self.broken = self._closers.pop() != character
            self.done = not self._closers and not self.broken
            return position if self.broken else position + 1
        elif _SCALAR.match(character):
            self._is_scalar = True
            return position
        else:
            self.broken = True
            return position
        return position + 1
