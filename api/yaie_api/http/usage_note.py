"""How an engine tells the router what an answer took, so that the router need not parse answers.

The router asks with a header of its own, which no client can send through it. The engine tells in
the header of that name of a plain answer. Of a stream it tells in one comment, after the last token
and before `[DONE]`, which the router takes out again: clients see the bytes of the engine alone.
"""

from typing import Final, Self

import msgspec

MARK: Final = b": yaie-usage "
"""Opens the comment."""
_END: Final = b"\n\n"
_MOST_BYTES: Final = 256


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens of one HTTP request, summed over its prompts and outputs.

    `cached_tokens`: those of the prompts that the prefix cache held.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    def header(self) -> bytes:
        """Return the value of the header."""
        return msgspec.json.encode(self)

    def comment(self) -> bytes:
        """Return the comment of a stream."""
        return MARK + self.header() + _END

    @classmethod
    def read(cls, told: bytes | str) -> Self | None:
        """Read the header's value; None: it is none."""
        try:
            return msgspec.json.decode(told, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            return None


class UsageFilter:
    """Takes the engine's comment out of a stream, however the stream is cut into pieces.

    A comment is known by its place at the beginning of a line, where no text of a model can come.
    `usage` is what it told. A piece without the mark costs one search in its bytes.
    """

    def __init__(self, usage: TokenUsage | None = None) -> None:
        self.usage = usage
        self._held = b""
        self._in_line = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes and return what the client gets of them, which may be nothing."""
        if not self._held and data.endswith(b"\n") and MARK not in data:
            self._in_line = False
            return data
        return self._search(self._held + data)

    def flush(self) -> bytes:
        """Return what is held back, at the end of a complete stream."""
        held, self._held = self._held, b""
        return held

    def _search(self, data: bytes) -> bytes:
        at = self._mark_in(data)
        if at is None:
            self._held = b""
            self._in_line = not data.endswith(b"\n") if data else self._in_line
            return data
        end = data.find(_END, at)
        if end < 0:
            if len(data) - at > _MOST_BYTES:  # it is no note of ours
                self._held, self._in_line = b"", True
                return data
            self._held, self._in_line = data[at:], False
            return data[:at]
        self.usage = TokenUsage.read(data[at + len(MARK) : end])
        self._held, self._in_line = b"", False
        return data[:at] + self._search(data[end + len(_END) :])

    def _mark_in(self, data: bytes) -> int | None:
        """Return where a mark, or at the end the beginning of one, opens a line."""
        if data.startswith(MARK) and not self._in_line:
            return 0
        found = data.find(b"\n" + MARK)
        if found >= 0:
            return found + 1
        last = data.rfind(b"\n") + 1
        if last == 0 and self._in_line:
            return None
        return last if last < len(data) and MARK.startswith(data[last:]) else None
