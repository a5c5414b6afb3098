"""Whether bytes of an event stream show that an engine computes. Pure.

Comments (`: ping`) keep a connection open while nothing is computed, and the events that open an
answer (the assistant's role, `response.created`, `message_start`) are written when a request is
queued. Neither is a token.
"""

import re
from typing import Final

_OPENING: Final = (
    b"event: ping",
    b"event: message_start",
    b"event: response.created",
    b"event: response.in_progress",
    b"event: response.queued",
)
_ROLE: Final = re.compile(rb'"delta":\s*\{"role":\s*"assistant"(,\s*"content":\s*(""|null))?\}')
_BORDER: Final = re.compile(rb"\n\r?\n")


def shows_data(data: bytes, at: int = 0) -> bool:
    """Whether there is more than comments from `at` on: cheap, for each piece of a stream that has
    begun. Nearly always, to look at four bytes is enough.
    """
    if data.startswith(b"data", at):
        return True
    data = data[at:]
    if not data.startswith((b":", b"event: ping")):
        return bool(data.strip())
    return any(_is_event(block) for block in _BORDER.split(data))


def events_in(data: bytes) -> int:
    """How many events with data there are. A part of an event at the end counts."""
    return data.count(b"\ndata:") + data.startswith(b"data:")


def shows_tokens(data: bytes) -> bool:
    """Whether there is more than comments and the events that open an answer.

    `data`: the stream from its beginning. A part of an event at its end does not count yet.
    """
    at = 0
    for border in _BORDER.finditer(data):  # stops at the first token
        block = data[at : border.start()]
        if _is_event(block) and not _opens(block):
            return True
        at = border.end()
    return False


def _is_event(block: bytes) -> bool:
    if block.startswith(b"data"):
        return True
    if block.startswith(b"event: ping"):
        return False
    return any(line and not line.startswith(b":") for line in block.splitlines())


def _opens(block: bytes) -> bool:
    return block.lstrip().startswith(_OPENING) or _ROLE.search(block) is not None
