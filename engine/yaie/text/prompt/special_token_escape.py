"""Special-token strings in what clients send: found, broken with a guard character, put back.

A message that holds `<|im_end|>` must not end its turn. Before the template is rendered a guard is
put into each such string; afterwards only unbroken ones are control tokens.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from yaie_api.errors import InvalidRequestError

_GUARDS: Final = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode noncharacters: reserved for internal use, so ordinary text has none of them."""


def any_of(contents: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for all strings, longest first, as the tokenizer matches them."""
    longest_first = sorted((c for c in contents if c), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def guard_for(pattern: re.Pattern[str] | None, given: Any) -> str:
    """A character that can break the strings of `pattern` in JSON values; "" when none occur.

    Raises:
        InvalidRequestError: every such character occurs in the values themselves.

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
    """The same JSON values with `guard` in each string that `pattern` finds."""
    return _map_strings(value, lambda text: _break_all(pattern, text, guard))


def strings(value: Any) -> Iterator[str]:
    """Every string in JSON values, keys too."""
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
    """Put `guard` after the first character of each match until none is left (they may nest)."""
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
