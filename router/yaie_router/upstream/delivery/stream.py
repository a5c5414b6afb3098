"""Ends a broken event stream so that clients notice: whole events, then an error event.

An engine may die in the middle of an event. `EventGate` passes bytes on unchanged, but holds back
the piece after the last event border, so that an error event can follow a whole one. Engines write
whole events, so in practice nothing waits here. Every byte of an event stream passes this gate and
no other place: what must see or change a stream belongs here, as the engine's note of its tokens.
"""

import json
from typing import Any, Final

from yaie_api.errors import YaieError
from yaie_api.http import envelopes
from yaie_api.http.usage_note import MARK, TokenUsage, UsageFilter
from yaie_router.routes import RESPONSES

_BORDERS: Final = (b"\n\n", b"\r\n\r\n")
_CHUNK_BORDERS: Final = tuple(border + b"\r\n" for border in _BORDERS)
MOST_HELD_BYTES: Final = 64 << 10


class EventGate:
    """Passes bytes on, cut at event borders, without the engine's note of the tokens that the
    answer took (`usage`, when it came). It holds at most `MOST_HELD_BYTES`.
    """

    def __init__(self) -> None:
        self._held = b""
        self._notes = UsageFilter()

    @property
    def usage(self) -> TokenUsage | None:
        return self._notes.usage

    @property
    def is_cut_off(self) -> bool:
        """Whether the engine says, at the end of its stream, that the answer is not whole."""
        return False

    def passes(self, chunk: bytes, at: int) -> bool:
        """Whether this chunk of a chunked body may go on as it came, without `push`: one event or
        several whole ones, whose payload begins `at`.
        """
        return not self._held and MARK not in chunk and chunk.endswith(_CHUNK_BORDERS, at)

    def push(self, data: bytes) -> bytes:
        """Take bytes and return what may be sent now, which may be nothing."""
        if self._held:
            data = self._held + data
        if data.endswith(_BORDERS):
            self._held = b""
            return self._notes.feed(data)
        cut = max(data.rfind(border) + len(border) if border in data else 0 for border in _BORDERS)
        if len(data) - cut > MOST_HELD_BYTES:
            cut = len(data)  # one huge event: a broken end is better than unbounded memory
        self._held = data[cut:]
        return self._notes.feed(data[:cut])

    def flush(self) -> bytes:
        """Return the rest, at the end of a complete stream."""
        held, self._held = self._held, b""
        return self._notes.feed(held) + self._notes.flush()


def last_words(error: YaieError, path: str) -> bytes:
    """Return the end of a stream that an engine did not finish, in the form of the path's API: a
    named event if its events have names, else a chunk and [DONE].
    """
    return last_event(envelopes.for_path(error, path), path)


def last_event(body: dict[str, Any], path: str) -> bytes:
    """Return the same for an error's body."""
    if path == RESPONSES:  # OpenAI's own error event is flat; its clients look for `error`
        body = body["error"] | {"type": "error"} | body
    if path in (RESPONSES, envelopes.ANTHROPIC_PATH):
        return b"event: error\ndata: %s\n\n" % json.dumps(body).encode()
    return b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(body).encode()
