"""Escapes special-token strings in clients' messages with a guard character.

A message that contains `<|im_end|>` must not end its turn. Before the template is rendered, a guard
character is inserted into each such string; afterwards only unbroken strings become control tokens,
and the guards are removed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from yaie_api.errors import InvalidRequestError

_GUARDS: Final = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode noncharacters, which are reserved for internal use and do not occur in normal text."""


def any_of(contents: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern that matches any of the strings, longest first, as the tokenizer does."""
    longest_first = sorted((c for c in contents if c), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def guard_for(pattern: re.Pattern[str] | None, given: Any) -> str:
    """A guard character for the matches of `pattern` in JSON values; "" if there are no matches.

    Raises:
        InvalidRequestError: the values contain all guard characters.

    """
    texts = list(strings(given))
    if pattern is None or not any(pattern.search(text) for text in texts):
        return ""
    for guard in _GUARDS:
        if not any(guard in text for text in texts):
            return guard
    raise InvalidRequestError(
        "The messages mix special-token strings and Unicode noncharacters.", param="messages"
    )


def broken(value: Any, pattern: re.Pattern[str], guard: str) -> Any:
    """The JSON values with `guard` inserted into each match of `pattern`."""
    return _map_strings(value, lambda text: _break_all(pattern, text, guard))


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in JSON values, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from strings(item)


def _break_all(pattern: re.Pattern[str], text: str, guard: str) -> str:
    """Insert `guard` after the first character of each match until none is left (they may nest)."""
    while pattern.search(text):
        text = pattern.sub(lambda match: match.group()[0] + guard + match.group()[1:], text)
    return text


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_strings(key, change): _map_strings(v, change) for key, v in value.items()}
    if isinstance(value, Sequence):
        return [_map_strings(item, change) for item in value]
    return value
