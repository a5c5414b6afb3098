"""The gate of a stream that another engine could continue: it lets whole pieces pass.

A piece ends with the engine's note (`yaie_api.http.replay`). The gate takes the notes out, keeps
their words, and holds back what follows the last one: if the engine dies, the client has exactly
what the words stand for. The end of a stream has no note, and passes when the stream is whole.
"""

from array import array
from typing import Final

from yaie_api.http.replay import LOST, MARK, MOST_WORDS, NOTE_END, add_words, new_words
from yaie_router.upstream.delivery.stream import MOST_HELD_BYTES, EventGate

_LINE: Final = b"\n" + MARK


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
        """Pass each piece that is whole; keep the rest."""
        out: list[bytes] = []
        start = 0
        while True:
            at = start if data.startswith(MARK, start) else data.find(_LINE, start) + 1
            if not at and not data.startswith(MARK, start):
                break
            end = data.find(NOTE_END, at)
            if end < 0:
                break
            if not self._take(data[at + len(MARK) : end]):
                break
            out.append(data[start:at])
            start = end + len(NOTE_END)
        rest = data[start:]
        if self.is_lost or len(rest) > MOST_HELD_BYTES:
            self.is_lost = True
            self._tail = b""
            return b"".join(out) + super().push(rest)
        self._tail = rest
        return b"".join(out)

    def _take(self, told: bytes) -> bool:
        """Keep a note's words. False: it is no note, or there are too many."""
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
