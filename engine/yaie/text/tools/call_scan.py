"""Incremental parser of one call written as a JSON object, `{"name": …, "arguments": {…}}`.

The keys may have any order, and other keys are ignored. Arguments are returned exactly as the model
wrote them, as soon as the name is known.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeGuard

from yaie.text.tools.json_scan import ValueScanner, skip_blanks

ARGUMENT_KEYS: Final = frozenset({"arguments", "parameters"})
MAX_NAME_CHARACTERS: Final = 256
_VALUES: Final = {"name": '"', "arguments": '{"n'}
"""First characters of these keys' values: a name is a string; arguments are an object, a string
that contains JSON, or null.
"""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_State = Callable[[str, int], int]


class CallScanner:
    """Parses one call.

    Attributes:
        name: the function's name, None until it has been read.
        done: whether the object is complete.
        broken: whether the text is not a valid call.
        committed: whether the call is certain: it has a name, and its arguments have begun.

    """

    __slots__ = (
        "_fragments",
        "_key",
        "_known",
        "_raw",
        "_seen",
        "_state",
        "_value",
        "_value_kind",
        "_written",
        "broken",
        "committed",
        "done",
        "name",
    )

    def __init__(self, known_names: frozenset[str] | None = None) -> None:
        self._known = known_names
        self._state: _State = self._open
        self._value = ValueScanner()
        self._value_kind = ""
        self._raw: list[str] = []
        self._written: list[str] = []
        self._fragments: list[str] = []
        self._key = ""
        self._seen: set[str] = set()
        self.name: str | None = None
        self.done = False
        self.broken = False
        self.committed = False

    @property
    def written(self) -> str:
        """All text read so far, if the call is not committed."""
        return "".join(self._written)

    def take_arguments(self) -> str:
        """Text of the arguments read since the last call of this method."""
        if not self.committed:
            return ""
        fragments = "".join(self._fragments)
        self._fragments.clear()
        return fragments

    def push(self, text: str, start: int) -> int:
        """Read on from `start`; returns the index after the text that belongs to the call."""
        position = start
        while position < len(text) and not (self.done or self.broken):
            position = self._step(text, position)
        if not self.committed:
            self._written.append(text[start:position])
        return position

    def _step(self, text: str, position: int) -> int:
        if not self._value_kind:
            position = skip_blanks(text, position)
            if position == len(text):
                return position
        return self._state(text, position)

    # -- states: `position` is at a character that is not whitespace, or inside a value ------------

    def _open(self, text: str, position: int) -> int:
        return self._expect(text, position, "{", self._read_key)

    def _colon(self, text: str, position: int) -> int:
        return self._expect(text, position, ":", self._begin_value)

    def _expect(self, text: str, position: int, character: str, then: _State) -> int:
        if text[position] != character:
            self.broken = True
            return position
        self._state = then
        return position + 1

    def _read_key(self, text: str, position: int) -> int:
        self._value_kind = self._value_kind or text[position]
        if self._value_kind != '"':
            self.broken = True
            return position
        end = self._value.push(text, position)
        self._raw.append(text[position:end])
        if self._value.done:
            self._set_key(self._decoded())
            self._begin(self._colon)
        return end

    def _set_key(self, key: Any) -> None:
        """Set the current key. A repeated key makes the call broken."""
        self._key = "arguments" if key in ARGUMENT_KEYS else str(key)
        if self._key in self._seen:
            self.broken = True
        self._seen.add(self._key)

    def _begin_value(self, text: str, position: int) -> int:
        self._value_kind = text[position]
        self.broken = self._value_kind not in _VALUES.get(self._key, self._value_kind)
        self._state = self._read_value
        return position

    def _read_value(self, text: str, position: int) -> int:
        end = self._value.push(text, position)
        if self._streams:
            self._fragments.append(text[position:end])
            self._commit()
        elif self._key in _VALUES:
            self._raw.append(text[position:end])
        self.broken = self.broken or self._value.broken
        if self._value.done:
            self._end_value()
        return end

    def _end_value(self) -> None:
        if self._key == "name":
            self._set_name(self._decoded())
        elif self._key == "arguments" and not self._streams:
            self._set_arguments(self._decoded())
        self._begin(self._after_value)
        self._commit()

    def _begin(self, state: _State) -> None:
        self._value = ValueScanner()
        self._value_kind = ""
        self._state = state

    @property
    def _streams(self) -> bool:
        """Whether the current value is the arguments' object, whose text is passed on at once."""
        return self._key == "arguments" and self._value_kind == "{"

    def _set_name(self, name: Any) -> None:
        known = self._known is None or name in self._known
        if _is_text(name) and 0 < len(name) <= MAX_NAME_CHARACTERS and known:
            self.name = name
        else:
            self.broken = True

    def _set_arguments(self, value: Any) -> None:
        """Set arguments that are null or a string with JSON."""
        text = "{}" if value is None else value
        if _is_text(text) and _is_object(text):
            self._fragments.append(text)
        else:
            self.broken = True

    def _after_value(self, text: str, position: int) -> int:
        if text[position] == "}":
            self._end()
            return position + 1
        return self._expect(text, position, ",", self._read_key)

    def _end(self) -> None:
        if self.name is None:
            self.broken = True
            return
        if not self._fragments and not self.committed:
            self._fragments.append("{}")
        self.committed = self.done = True

    def _commit(self) -> None:
        if self.name is not None and self._fragments and not self.broken:
            self.committed = True

    def _decoded(self) -> Any:
        """The decoded value of the text in `_raw`, a string or a scalar."""
        raw, self._raw = "".join(self._raw), []
        try:
            return json.loads(raw)
        except ValueError:
            self.broken = True
            return None


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether the value is a string without lone surrogates, which escapes can produce."""
    return isinstance(value, str) and not _SURROGATE.search(value)


def _is_object(text: str) -> bool:
    """Whether the text is a complete object, as far as `ValueScanner` checks."""
    scanner = ValueScanner()
    end = scanner.push(text, 0)
    return text.startswith("{") and scanner.done and not text[end:].strip()
