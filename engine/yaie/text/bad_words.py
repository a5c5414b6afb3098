"""Words that must not be said, as token ids."""

from collections.abc import Sequence
from typing import Protocol

from yaie_api.errors import InvalidRequestError


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...


def bad_words_ids(words: Sequence[str], tokenizer: Encoder) -> tuple[tuple[int, ...], ...]:
    """Ids of each word at the beginning of a text and after a space.

    The second form is another ban only where it begins with another token and is as long.

    Raises:
        InvalidRequestError: a word has no tokens.

    """
    found: list[tuple[int, ...]] = []
    for word in words:
        first, inner = (
            tuple(tokenizer.encode(prefix + word.lstrip(), add_special_tokens=False))
            for prefix in ("", " ")
        )
        if not first:
            raise InvalidRequestError("bad_words must not be empty.", param="bad_words")
        found.append(first)
        if inner[0] != first[0] and len(inner) == len(first):
            found.append(inner)
    return tuple(found)
