"""Wraps an answer at words while it is being written. Pure: it returns what a terminal is to show.

A word is shown as it comes; when it does not fit, it is taken back and stands on the next line.
Code blocks and tables are left as they are.
"""

from collections.abc import Callable
from typing import Final

from prompt_toolkit.utils import get_cwidth

_FENCES: Final = ("```", "~~~")
_TAB: Final = 8


class Wrapper:
    """Wraps one text; `columns` says how wide the terminal is, and is asked at each line's start.

    The last column stays empty: a terminal whose cursor is there disagrees with others about where
    the next character goes.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._in_code = False
        self._width = self._column = self._word_width = 0
        self._line = self._word = ""
        self._begin_line()

    def feed(self, piece: str) -> str:
        """What to write for more text, which has no control characters but line breaks and tabs."""
        return "".join(map(self._character, piece))

    def _character(self, one: str) -> str:
        if one == "\n":
            self._in_code ^= self._is_fence
            self._begin_line()
            return one
        if len(self._line) < _TAB:
            self._line += one
        if self._is_left_alone:
            return one
        if one in " \t":
            return self._space(one)
        return self._letter(one, get_cwidth(one))

    def _space(self, one: str) -> str:
        self._word, self._word_width = "", 0
        column = self._column + 1 if one == " " else (self._column // _TAB + 1) * _TAB
        if column > self._width:
            self._column = 0
            return "\n"
        self._column = column
        return one

    def _letter(self, one: str, width: int) -> str:
        if width > 1:  # between wide characters a line may end anywhere
            self._word, self._word_width = "", 0
        before = ""
        if self._column + width > self._width:
            back = self._word_width
            fits = back < self._column
            before = f"\033[{back}D\033[K\n{self._word}" if fits and back else "\n"
            self._column = back if fits else 0
        self._column += width
        self._word += one
        self._word_width += width
        return before + one

    def _begin_line(self) -> None:
        self._width = max(self._columns() - 1, 20)
        self._line = self._word = ""
        self._column = self._word_width = 0

    @property
    def _is_fence(self) -> bool:
        return self._line.lstrip().startswith(_FENCES)

    @property
    def _is_left_alone(self) -> bool:
        return self._in_code or self._is_fence or self._line.startswith("|")
