"""Converts token ids to text incrementally, and finds stop strings. Pure: no clock, no I/O.

The server and `LLM` use one `TextStream` per output. It returns only complete characters, holds
back text that may become a stop string, and counts the tokens up to the end of the kept text (later
tokens do not count as usage).
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from yaie.core.request import SamplingParams

MAX_PENDING_TOKENS: Final = 4
"""A UTF-8 character has at most four bytes, so it cannot take more byte tokens than that."""


class Vocabulary(Protocol):
    """The part of a tokenizer that the detokenizer uses."""

    @property
    def is_exact(self) -> bool:
        """Whether a text is exactly its tokens' bytes, joined and decoded as UTF-8."""
        ...

    @property
    def strips_space(self) -> bool:
        """Whether one space at the beginning of the text is removed."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token of an exact vocabulary; empty for an unknown id."""
        ...

    def token_text(self, token_id: int) -> str:
        """The token's string in the vocabulary."""
        ...

    def is_special(self, token_id: int) -> bool: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...


class Detokenizer(Protocol):
    """Converts token ids to complete characters."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class TextStream:
    """The text of one output.

    Attributes:
        never_stops: whether there are no stop strings.
        stopped: whether a stop string was found; the caller then ends the generation.
        stop_reason: the stop string that was found, or None.
        num_tokens: number of tokens up to the end of the kept text.

    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        sampling: SamplingParams,
        shown_special_tokens: frozenset[str] = frozenset(),
    ) -> None:
        """`shown_special_tokens` are never removed, because a parser of the text looks for them."""
        self._detokenizer = detokenizer(
            tokenizer, sampling.skip_special_tokens, shown_special_tokens
        )
        self._stops = StopStrings(sampling.stop, include=sampling.include_stop_str_in_output)
        self.never_stops = not self._stops
        self._keep_stop_token = sampling.include_stop_str_in_output
        self._min_tokens = sampling.min_tokens
        self.num_tokens = 0

    @property
    def stopped(self) -> bool:
        return self._stops.met is not None

    @property
    def stop_reason(self) -> str | None:
        return self._stops.met

    def push(self, token_ids: Sequence[int], *, stop_token_id: int | None = None) -> str:
        """Add tokens and return the text that is now final; empty after a stop string was found.

        `stop_token_id`: the last id ended the generation. It counts as a token, and its text is
        removed unless the request keeps stop strings.
        """
        shown: Sequence[int] = token_ids
        if stop_token_id is not None and not self._keep_stop_token:
            shown = token_ids[:-1]
        if self.never_stops:
            self.num_tokens += len(token_ids)
            return self._detokenizer.push(shown)
        if self.stopped:
            return ""
        text = self._push_one_by_one(shown)
        if not self.stopped:
            self.num_tokens += len(token_ids) - len(shown)
        return text

    def finish(self) -> str:
        """End the output and return the text that was held back."""
        if self.stopped:
            return ""
        tail = self._detokenizer.finish()
        return self._stops.push(tail) + self._stops.finish()

    def _push_one_by_one(self, token_ids: Sequence[int]) -> str:
        parts: list[str] = []
        for token_id in token_ids:
            self.num_tokens += 1
            text = self._detokenizer.push((token_id,))
            if self.num_tokens < self._min_tokens:
                parts.append(text)
                continue
            parts.append(self._stops.push(text))
            if self.stopped:
                break
        return "".join(parts)


class StopStrings:
    """Finds the stop string that is complete first, independently of the division into chunks.

    The held text is the longest suffix of the text so far that is a proper prefix of a stop string.
    It is shorter than the longest stop string, so the total work is linear in the text.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        self.met: str | None = None

    def __bool__(self) -> bool:
        return bool(self._stops)

    def push(self, text: str) -> str:
        if not text or self.met is not None:
            return ""
        text = self._held + text
        found = self._first_complete(text)
        if found is not None:
            end, start, self.met = found
            self._held = ""
            return text[: end if self._include else start]
        keep = len(text) - self._undecided(text)
        self._held = text[keep:]
        return text[:keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    def _first_complete(self, text: str) -> tuple[int, int, str] | None:
        """(end, start, stop) of the match that ends first; of several, the longest match."""
        matches = (
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := text.find(stop)) >= 0
        )
        return min(matches, default=None)

    def _undecided(self, text: str) -> int:
        return max((unfinished(text, stop) for stop in self._stops), default=0)


def unfinished(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start = text.find(stop[0], start + 1)
    return 0


def detokenizer(
    tokenizer: Vocabulary,
    skip_special_tokens: bool,  # noqa: FBT001 - mirrors the field
    shown: frozenset[str] = frozenset(),
) -> Detokenizer:
    """The exact byte detokenizer if the vocabulary allows it, else the one with a window."""
    made = ByteDetokenizer if tokenizer.is_exact else WindowDetokenizer
    return made(tokenizer, skip_special_tokens=skip_special_tokens, shown=shown)


def _hidden(tokenizer: Vocabulary, shown: frozenset[str]) -> Callable[[int], bool]:
    """The predicate of special tokens to remove."""
    if not shown:
        return tokenizer.is_special
    return lambda token_id: (
        tokenizer.is_special(token_id) and tokenizer.token_text(token_id) not in shown
    )


class ByteDetokenizer:
    """For byte-level and byte-fallback vocabularies, whose tokens are bytes of UTF-8 text.

    Exact, in linear time; invalid bytes become U+FFFD without affecting the text beside them.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        skip_special_tokens: bool,
        shown: frozenset[str] = frozenset(),
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._is_hidden = _hidden(tokenizer, shown)
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strips = tokenizer.strips_space
        self._is_whole = True

    def push(self, token_ids: Sequence[int]) -> str:
        if self._skip:
            token_ids = [i for i in token_ids if not self._is_hidden(i)]
        if len(token_ids) == 1:  # the usual case: one token per step, often plain ASCII
            data = self._token_bytes(token_ids[0])
            if self._is_whole and not self._strips and data.isascii():
                return data.decode("ascii")
        else:
            data = b"".join(map(self._token_bytes, token_ids))
        text = self._decoder.decode(data)
        self._is_whole = not self._decoder.getstate()[0]
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For other vocabularies (e.g. WordPiece): decodes a short window of tokens.

    The window is [context | pending]. The context is the group of tokens whose text was returned
    last, so it begins at a character boundary. Pending tokens wait while their text is empty or
    ends in an incomplete character.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        skip_special_tokens: bool,
        shown: frozenset[str] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._is_hidden = _hidden(tokenizer, shown)
        self._skip = skip_special_tokens
        self._context: list[int] = []
        self._pending: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join([self._push_one(token_id) for token_id in token_ids])

    def finish(self) -> str:
        return self._show(self._pending_text())

    def _push_one(self, token_id: int) -> str:
        if self._skip and self._is_hidden(token_id):
            return ""
        self._pending.append(token_id)
        text = self._pending_text()
        undecided = not text or text.endswith("\ufffd")
        if undecided and len(self._pending) < MAX_PENDING_TOKENS:
            return ""
        return self._show(text)

    def _pending_text(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._pending)[len(before) :]

    def _show(self, text: str) -> str:
        if text:
            self._context = self._pending
        self._pending = []
        return text

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)
