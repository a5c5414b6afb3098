"""Where the body of an answer ends: after the last chunk, after a length, or with the connection.

Pure: bytes go in, and the body's bytes come out. What engines send is taken as strictly as a front
end must: a size is hexadecimal digits and nothing else, and lines end with CRLF.
"""

import re
from typing import Final, Literal, Protocol

MOST_LINE_BYTES: Final = 4096
_MOST_DIGITS: Final = 12
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12})\r\n")
_EXTENDED: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n]*)?\r\n")
_CRLF: Final = b"\r\n"
_DIGITS: Final = b"0123456789abcdefABCDEF"


class FramingError(Exception):
    """The bytes are no body, or end in the middle of it. `payload`: what came before."""

    payload = b""


class Body(Protocol):
    """A body that comes. `is_done`: it is whole. `has_more`: something came behind it."""

    is_done: bool
    has_more: bool

    def only_chunk(self, data: bytes) -> int:
        """Return where the payload begins if the data is exactly one chunk, as most engines write
        it, else 0.
        """

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connection and return those of the body.

        Raises:
            FramingError: they cannot be.

        """

    def end(self) -> None:
        """Note that the connection has ended.

        Raises:
            FramingError: the body has not.

        """


class Chunked:
    """Transfer-Encoding: chunked. `_left`: bytes of the chunk that are to come; `_held`: a line
    that is not whole. Extensions and trailers are read and dropped.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.has_more = False
        self._next: Literal["size", "border", "trailer"] = "size"
        self._left = 0
        self._held = b""

    def only_chunk(self, data: bytes) -> int:
        if self._next != "size" or self._held:
            return 0
        digits = data.find(_CRLF, 0, _MOST_DIGITS + 2)
        size = len(data) - digits - 4
        if size > 0 and data[:digits] == b"%x" % size and data.endswith(_CRLF):
            return digits + 2
        return 0

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        parts: list[bytes] = []
        try:
            at = self._read(data, parts)
        except FramingError as error:
            error.payload = b"".join(parts)
            raise
        self.has_more = self.is_done and at < len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> None:
        """Note that the connection has ended.

        Raises:
            FramingError: a chunk or the last one is missing.

        """
        if not self.is_done:
            raise FramingError("the last chunk is missing")

    def _read(self, data: bytes, parts: list[bytes]) -> int:
        """Add the payloads of chunks to `parts`; return where reading ended."""
        at, is_split = 0, False
        while at < len(data) and not self.is_done:
            if self._left:
                parts.append(data[at : at + self._left])
                at += len(parts[-1])
                self._left -= len(parts[-1])
                continue
            after = at
            if self._next == "size" and not is_split:
                after, is_split = _plain_chunks(data, at, parts), True
            if after == at and (after := self._line(data, at)) == at:
                self._held = data[at:]
                return len(data)
            at = after
        return at

    def _line(self, data: bytes, at: int) -> int:
        """Read what is between payloads; return the place behind it, or the same: it is cut."""
        if self._next == "size":
            return self._size(data, at)
        if self._next == "border":
            return self._border(data, at)
        return self._trailer(data, at)

    def _size(self, data: bytes, at: int) -> int:
        found = _SIZE.match(data, at) or _EXTENDED.match(data, at)
        if found is None:
            line = data[at : at + MOST_LINE_BYTES]
            if _CRLF in line or len(line) == MOST_LINE_BYTES or line[0] not in _DIGITS:
                raise FramingError("this is no size of a chunk")
            return at
        self._left = int(found[1], 16)
        self._next = "border" if self._left else "trailer"
        return found.end()

    def _border(self, data: bytes, at: int) -> int:
        begun = data[at : at + 2]
        if not _CRLF.startswith(begun):
            raise FramingError("a chunk is longer than it says")
        if len(begun) < len(_CRLF):
            return at
        self._next = "size"
        return at + len(_CRLF)

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(_CRLF, at)
        if end < 0:
            if len(data) - at > MOST_LINE_BYTES:
                raise FramingError("a trailer is too long")
            return at
        self.is_done = end == at
        return end + len(_CRLF)


def _plain_chunks(data: bytes, at: int, parts: list[bytes]) -> int:
    """Read the chunks at the beginning that are whole, and plain, as most are: no CRLF is in their
    payloads, and their sizes are in lower case without zeros before them.
    """
    lines = data[at:].split(_CRLF)
    for size, payload in zip(lines[:-1:2], lines[1:-1:2], strict=False):
        if not payload or size != b"%x" % len(payload):
            break
        parts.append(payload)
        at += len(size) + len(payload) + 2 * len(_CRLF)
    return at


class Length:
    """Content-Length, or no body at all."""

    def __init__(self, size: int) -> None:
        self.is_done = size == 0
        self.has_more = False
        self._left = size

    def only_chunk(self, data: bytes) -> int:  # noqa: ARG002 - Body's
        return 0

    def feed(self, data: bytes) -> bytes:
        body = data[: self._left]
        self._left -= len(body)
        self.is_done = self._left == 0
        self.has_more = len(body) < len(data)
        return body

    def end(self) -> None:
        """Note that the connection has ended.

        Raises:
            FramingError: bytes are missing.

        """
        if not self.is_done:
            raise FramingError(f"{self._left} bytes are missing")


class UntilClosed:
    """Neither: the body is what comes until the connection ends."""

    def __init__(self) -> None:
        self.is_done = False
        self.has_more = False

    def only_chunk(self, data: bytes) -> int:  # noqa: ARG002 - Body's
        return 0

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.is_done = True
