"""How a router has another engine continue a stream whose engine has died.

A request is a *replay* of its first attempt if it has the same body and the same `Identity`, which
the router makes: then ids, times and draws are the same. An engine that can be replayed says so in
the header of its answer, and after each piece of the stream it writes a note, a comment with what
the piece was made of. What stands before a note may go to the client; what stands after the last
one may not yet. The router takes the notes out, keeps their words, and never reads them.

    data: {…"Hel"…}          two tokens made this piece; the second one ends it
    : yaie-note 17 2147484010

If the engine dies, the router sends the body, followed by all words (4 bytes each, little-endian),
to a peer, which goes through them without writing, and then writes on. The end of a stream has no
note: it reaches the client whole or not at all.
"""

import secrets
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, Self

import msgspec

from yaie_api.errors import InvalidRequestError

MARK: Final = b": yaie-note "
"""Opens a note. An empty line ends it."""
NOTE_END: Final = b"\n\n"
LOST: Final = b": yaie-lost\n\n"
"""Written instead of a note, before the error: the process that computes has died, and the one that
writes has not."""
CAN_REPLAY: Final = "1"
"""The header's value in an answer whose stream has notes."""
WORD_BYTES: Final = 4
MOST_WORDS: Final = 1 << 18
"""1 MiB: a stream with more tokens is not continued."""
_ENDS_PIECE: Final = 1 << 31
_CACHED: Final = 1 << 30
_VALUE: Final = _CACHED - 1


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the attempts of one request have in common; the value of the request's header.

    `nonce`: 32 hex digits, from which ids are made. `seed`: of the draws, if the client gives none.
    `created_s`: when the answer began. `tail_bytes`: how much of the body's end are words, if the
    client has a part of the answer; None: it has nothing.
    """

    nonce: str
    seed: int
    created_s: int
    tail_bytes: int | None = None

    @classmethod
    def new(cls) -> Self:
        """Make one for a new request."""
        drawn = secrets.token_bytes(16 + 8)
        return cls(drawn[:16].hex(), int.from_bytes(drawn[16:]) >> 1, int(time.time()))

    def header(self) -> str:
        """Return the header's value."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, value: str) -> Self | None:
        """Read the header's value; None: it is empty.

        Raises:
            InvalidRequestError: it is none.

        """
        if not value:
            return None
        try:
            found = msgspec.json.decode(value, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            raise InvalidRequestError("The header of a replay is wrong.") from None
        tail = found.tail_bytes
        if not (found.nonce.isascii() and found.nonce.isalnum() and len(found.nonce) == 32):
            raise InvalidRequestError("The nonce of a replay is wrong.")
        if tail is not None and (tail % WORD_BYTES or not 0 <= tail <= MOST_WORDS * WORD_BYTES):
            raise InvalidRequestError("The tail of a replay is wrong.")
        return found


class Piece(msgspec.Struct, frozen=True):
    """Tokens that one piece of a stream was made of. `cached_tokens`: as in the usage, if known."""

    token_ids: tuple[int, ...]
    cached_tokens: int | None = None


def note(token_ids: Iterable[int], cached_tokens: int | None = None) -> bytes:
    """Return the note of a piece. Without tokens: of one that was written before the first token.

    `cached_tokens`: told once, with the first tokens.
    """
    words = list(token_ids)
    if words:
        words[-1] |= _ENDS_PIECE
    if cached_tokens is not None:
        words.insert(0, _CACHED | cached_tokens)
    return MARK + b" ".join([b"%d" % word for word in words]) + NOTE_END


def add_words(words: "array[int]", told: bytes) -> None:
    """Append the words of a note, or of several, which are given without their marks and ends.

    Raises:
        ValueError: it is no note.
        OverflowError: a word is out of range.

    """
    words.extend(map(int, told.split()))


def new_words() -> "array[int]":
    """Make an empty list of words."""
    return array("I")


def tail_of(words: "array[int]") -> bytes:
    """Return the words as the end of a body."""
    if sys.byteorder == "little":
        return words.tobytes()
    swapped = array("I", words)
    swapped.byteswap()
    return swapped.tobytes()


def pieces_of(tail: bytes) -> list[Piece]:
    """Read the end of a body.

    Raises:
        InvalidRequestError: it does not end with a piece.

    """
    return list(_pieces(tail))


def _pieces(tail: bytes) -> Iterator[Piece]:
    words = array("I", tail)
    if sys.byteorder != "little":
        words.byteswap()
    ids: list[int] = []
    cached: int | None = None
    for word in words:
        if word & _ENDS_PIECE:
            ids.append(word & _VALUE)
            yield Piece(tuple(ids), cached)
            ids, cached = [], None
        elif word & _CACHED:
            cached = word & _VALUE
        else:
            ids.append(word)
    if ids:
        raise InvalidRequestError("The tail of a replay is cut off.")
