"""Which HTTP process a request came from, where several share one engine process.

Each event of a request goes to its owner only, so that no HTTP process reads what others stream.
The engine's loop knows nothing of it.
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


class Owners:
    """Which of several HTTP processes each live request belongs to."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._found: dict[str, tuple[int, int]] = {}
        """(place of the process, outputs that have not ended) by request."""

    def __len__(self) -> int:
        return len(self._found)

    def note(self, commands: Sequence[Command], place: int) -> None:
        """These commands came from the process at `place`."""
        if self._count == 1:
            return
        for command in commands:
            if isinstance(command, Generate):
                self._found[command.request_id] = (place, command.sampling.n)
            elif isinstance(command, ResetPrefixCache):
                self._found[command.request_id] = (place, 0)

    def split(self, events: Sequence[Event]) -> list[list[Event]]:
        """The events for each process, in their order. Those of no known request are for nobody."""
        if self._count == 1:
            return [list(events)]
        parts: list[list[Event]] = [[] for _ in range(self._count)]
        for event in events:
            if isinstance(event, Stats):
                for part in parts:
                    part.append(event)
            elif (known := self._found.get(event.request_id)) is not None:
                place, left = known
                parts[place].append(event)
                if not isinstance(event, Tokens) or event.finish_reason is not None:
                    self._ended(event, place, left)
        return parts

    def _ended(self, event: Accepted | Rejected | Tokens, place: int, left: int) -> None:
        """One output has ended, or the request was answered."""
        if isinstance(event, Tokens):
            left -= 1
        elif isinstance(event, Rejected):
            left = 0
        if left > 0:
            self._found[event.request_id] = (place, left)
        else:
            del self._found[event.request_id]
