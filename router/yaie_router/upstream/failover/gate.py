"""The gate of a stream that another engine could continue: it lets whole pieces pass.

A piece ends with the engine's note (`yaie_api.http.replay`). The gate takes the notes out, keeps
their words, and holds back what follows the last one: if the engine dies, the client has exactly
what the words stand for. The end of a stream has no note, and passes when the stream is whole.
"""

import re
from array import array
from typing import Final

from yaie_api.http.replay import LOST, MARK, MOST_WORDS, NOTE_END, add_words, new_words
from yaie_router.upstream.delivery.stream import MOST_HELD_BYTES, EventGate

_LINE: Final = b"\n" + MARK
_NOTE: Final = re.compile(re.escape(_LINE) + rb"(.*?)\n(?=\n)", re.DOTALL)
"""A note, with the line break before it, which ends its piece, and without its own last one, which
comes before the next piece.
"""


class NotedGate(EventGate):
    """Passes bytes on up to the last note, without the notes.

    `words`: those of all notes, over all engines of the stream. `has_passed`: whether the client
    has a piece. `is_lost`: the engine does not write as it said, so the stream is passed on as any
    other, and cannot be continued.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words: array[int] = new_words()
        self.has_passed = False
        self.is_lost = False
        self._tail = b""

    def passes(self, chunk: bytes, at: int) -> bool:
        return self.is_lost and super().passes(chunk, at)

    def push(self, data: bytes) -> bytes:
        if self.is_lost:
            return super().push(data)
        if self._tail:
            data = self._tail + data
        at = data.find(_LINE) + 1
        if at and data.endswith(NOTE_END) and data.find(b"\n", at) == len(data) - 2:
            self._tail = b""
            return data[:at] if self._take(data[at + len(MARK) : -2]) else super().push(data)
        return self._pieces(data)

    @property
    def is_cut_off(self) -> bool:
        return self._tail.startswith(LOST) or b"\n" + LOST in self._tail

    def flush(self) -> bytes:
        tail, self._tail = self._tail.replace(LOST, b"", 1) if self.is_cut_off else self._tail, b""
        return super().push(tail) + super().flush()

    def another(self) -> None:
        """The answer goes on from another engine: drop what has not passed."""
        self._tail = b""

    def _pieces(self, data: bytes) -> bytes:
        """Pass the pieces that are whole, and keep the rest. A read may have many."""
        *whole, rest = _NOTE.split(b"\n" + data)
        rest = rest[1:]
        out = b"".join(whole[::2])
        if out:
            out = out[1:] + b"\n"
        if whole and not self._take(b" ".join(whole[1::2])):
            self._tail = b""
            return super().push(data)
        if self.is_lost or len(rest) > MOST_HELD_BYTES:
            self.is_lost = True
            self._tail = b""
            return out + super().push(rest)
        self._tail = rest
        return out

    def _take(self, told: bytes) -> bool:
        """Keep the words of notes. False: they are none."""
        try:
            add_words(self.words, told)
        except (ValueError, OverflowError):
            self.is_lost = True
            return False
        if len(self.words) > MOST_WORDS:
            self.is_lost = True
            self.words = new_words()
        self.has_passed = True
        return True
