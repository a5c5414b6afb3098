"""Converts banned words to token ids."""

from collections.abc import Sequence
from typing import Protocol

from yaie_api.errors import InvalidRequestError


class Encoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...


def bad_words_ids(words: Sequence[str], tokenizer: Encoder) -> tuple[tuple[int, ...], ...]:
    """Token ids of each word at the beginning of a text and after a space.

    The second form is added only if it has another first token and the same length, as in vLLM.

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
