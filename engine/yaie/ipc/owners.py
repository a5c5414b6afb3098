"""Tracks which HTTP process sent each request, if several share one engine process.

A request's events go only to its owner, so that no HTTP process reads the streams of others. The
engine loop does not depend on this.
"""

from collections.abc import Sequence

from yaie.core.messages import (
    Accepted,
    Command,
    Event,
    Generate,
    Rejected,
    ResetPrefixCache,
    Stats,
    Tokens,
)
from yaie_api.prefix import PrefixUpdate


class Owners:
    """The HTTP process of each live request."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._found: dict[str, tuple[int, int]] = {}
        """By request: (index of the process, number of outputs that have not ended)."""

    def __len__(self) -> int:
        return len(self._found)

    def note(self, commands: Sequence[Command], place: int) -> None:
        """Record that these commands came from process number `place`."""
        if self._count == 1:
            return
        for command in commands:
            if isinstance(command, Generate):
                self._found[command.request_id] = (place, command.sampling.n)
            elif isinstance(command, ResetPrefixCache):
                self._found[command.request_id] = (place, 0)

    def split(self, events: Sequence[Event]) -> list[list[Event]]:
        """The events for each process, in order; events of unknown requests are dropped."""
        if self._count == 1:
            return [list(events)]
        parts: list[list[Event]] = [[] for _ in range(self._count)]
        for event in events:
            if isinstance(event, Stats | PrefixUpdate):
                for part in parts:
                    part.append(event)
            elif (known := self._found.get(event.request_id)) is not None:
                place, left = known
                parts[place].append(event)
                if not isinstance(event, Tokens) or event.finish_reason is not None:
                    self._ended(event, place, left)
        return parts

    def _ended(self, event: Accepted | Rejected | Tokens, place: int, left: int) -> None:
        """Handle the end of one output, or an event that answers the request."""
        if isinstance(event, Tokens):
            left -= 1
        elif isinstance(event, Rejected):
            left = 0
        if left > 0:
            self._found[event.request_id] = (place, left)
        else:
            del self._found[event.request_id]
