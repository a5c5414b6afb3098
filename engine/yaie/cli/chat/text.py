"""Writes a model's text to a terminal or a pipe."""

import os
import shutil
import sys
from typing import TextIO

from yaie.cli.chat.wrap import Wrapper

_KEPT = "\n\t"


class TextWriter:
    """Writes pieces of text immediately.

    On a terminal, control characters are removed, so that an answer cannot move the cursor or set
    a title, and lines end between words. A pipe gets the unchanged text.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._terminal = self._stream.isatty()
        self._wrapper = Wrapper(lambda: shutil.get_terminal_size().columns)
        self._wraps = self._terminal and os.environ.get("TERM") != "dumb"
        self.text = ""

    def write(self, piece: str) -> None:
        self.text += piece
        shown = harmless(piece) if self._terminal else piece
        self._stream.write(self._wrapper.feed(shown) if self._wraps else shown)
        self._stream.flush()

    def end_line(self) -> None:
        if not self.text.endswith("\n"):
            self._stream.write("\n")
            self._stream.flush()


def harmless(text: str) -> str:
    """The text without control characters other than newlines and tabs."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in _KEPT or not _is_control(c))


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0
