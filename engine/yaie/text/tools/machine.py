"""The state machine of all tool parsers.

A state is a method that reads the text from a position on and returns the position up to which it
has read. If it neither advances nor changes the state, it waits for more text. Unread text is kept
for the next call; it is part of a tag or a name, so its length is bounded, and the total time is
linear in the text for any chunks.
"""

from collections.abc import Callable
from typing import Final, Protocol

from yaie.text.detokenizer import unfinished
from yaie.text.parts import Part
from yaie.text.tools.json_scan import skip_blanks
from yaie.text.tools.parts import NewCallId, PartList

State = Callable[[str, int], int]

MAX_HELD_BLANKS: Final = 64
"""Most whitespace before a call that is removed from the text; more counts as intended layout."""


class Call(Protocol):
    """A call that is being parsed: `CallScanner` or `NamedCall`."""

    name: str | None
    done: bool
    broken: bool
    committed: bool

    @property
    def written(self) -> str: ...

    def take_arguments(self) -> str: ...

    def push(self, text: str, start: int) -> int: ...


class ToolParser:
    """Parses text up to `opening`, then the format's calls.

    Formats implement `_opened`, the state after `opening`, and `_closed`, the state after a
    complete call.

    `enforced`: a grammar makes a call of whatever `opening` begins. A call that the output's end
    cuts off before it has a name is then left out, instead of being returned as text.
    """

    opening: str = ""
    special_tokens: frozenset[str] = frozenset()

    def __init__(self, new_call_id: NewCallId, *, enforced: bool = False) -> None:
        self._parts = PartList(new_call_id)
        self._enforced = enforced
        self._held = ""
        self._state: State = self._text
        self._call: Call | None = None
        self._begun = False
        self._as_text: list[str] = []  # text to return if this turns out not to be a call
        self._over = False

    @property
    def shown_special_tokens(self) -> frozenset[str]:
        """Special tokens of the format."""
        return self.special_tokens

    def push(self, text: str) -> list[Part]:
        """Add text and return the parts that are now final."""
        self._run(self._held + text)
        return self._parts.take()

    def finish(self) -> list[Part]:
        """End the output and return the parts that were held back."""
        self._over = True
        if self._enforced and not self._in_text:
            self._held = ""
            return self._parts.take()
        self._run(self._held)
        self._give_up()
        blank_end = self._parts.ends_in_call and not self._held.strip()
        self._parts.text("" if blank_end else self._held)
        self._held = ""
        return self._parts.take()

    @property
    def _in_text(self) -> bool:
        """Whether no call has been opened, or the last one is complete with its end."""
        return self._state == self._text

    # -- for formats ------------------------------------------------------------------------

    def _opened(self, text: str, position: int) -> int:
        """The state after `opening`."""
        raise NotImplementedError

    def _closed(self, text: str, position: int) -> int:
        """The state after a complete call."""
        raise NotImplementedError

    def _begin(self, call: Call) -> None:
        """Start to parse a call."""
        self._call, self._begun = call, False
        self._state = self._reading

    def _literal(self, text: str, position: int, expected: str, then: State) -> int | None:
        """Read whitespace and `expected`, then continue in state `then`; returns the new position.

        An unchanged position means that `expected` may still arrive; None means other text.
        """
        start = skip_blanks(text, position)
        if start - position > MAX_HELD_BLANKS:
            return None
        if text.startswith(expected, start):
            self._remember(text[position : start + len(expected)])
            self._state = then
            return start + len(expected)
        return position if self._may_come(text, start, expected) else None

    def _past_blanks(self, text: str, position: int) -> int:
        """Index after whitespace; `position` itself if there are more than MAX_HELD_BLANKS."""
        found = skip_blanks(text, position)
        return found if found - position <= MAX_HELD_BLANKS else position

    def _may_come(self, text: str, position: int, expected: str) -> bool:
        return not self._over and expected.startswith(text[position:])

    def _remember(self, text: str) -> None:
        """Keep text that is returned as text if no valid call follows."""
        self._as_text.append(text)

    def _give_up(self, position: int = 0) -> int:
        """Return what was read for a call as text, and continue in the state for text."""
        if self._call is not None and not self._begun:
            self._remember(self._call.written)
        self._call = None
        for piece in self._as_text:
            self._parts.text(piece)
        self._as_text.clear()
        self._state = self._text
        return position

    # -- states -----------------------------------------------------------------------------

    def _text(self, text: str, position: int) -> int:
        found = text.find(self.opening, position)
        if found < 0:
            return self._plain(text, position)
        kept = max(len(text[position:found].rstrip()) + position, found - MAX_HELD_BLANKS)
        self._parts.text(text[position:kept])
        end = found + len(self.opening)
        self._remember(text[kept:end])
        self._state = self._opened
        return end

    def _plain(self, text: str, position: int) -> int:
        """Return text that cannot belong to a tag or to the whitespace before a tag."""
        if self._over:
            return position
        end = max(position, len(text) - unfinished(text, self.opening))
        kept = max(position, len(text[position:end].rstrip()) + position, end - MAX_HELD_BLANKS)
        self._parts.text(text[position:kept])
        return kept

    def _reading(self, text: str, position: int) -> int:
        call = self._call
        if call is None:
            raise RuntimeError("no call is being read")
        end = call.push(text, position)
        self._show(call)
        if call.broken:
            return self._give_up(end)
        if call.done:
            self._call = None
            self._state = self._closed
        return end

    def _show(self, call: Call) -> None:
        if not call.committed:
            return
        fragment = call.take_arguments()
        if self._begun:
            self._parts.arguments(fragment)
        else:
            self._begun = True
            self._as_text.clear()
            self._parts.begin_call(call.name or "", fragment)

    def _run(self, text: str) -> None:
        position = 0
        while True:
            state = self._state
            end = state(text, position)
            if end == position and self._state == state:
                break
            position = end
        self._held = text[position:]
