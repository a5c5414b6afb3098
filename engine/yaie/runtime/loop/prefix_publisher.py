"""Says when the engine publishes its prefix keys and its load, and numbers what it says.

Until somebody watches, nothing is published, and a step pays for one comparison.
"""

import math
from collections.abc import Sequence
from typing import Final

from yaie.core.scheduler.scheduler import Scheduler
from yaie_api.prefix.updates import KEYS_PER_LINE, Load, PrefixUpdate, snapshot

INTERVAL_S: Final = 0.1
"""Changes wait at most this long for others, if steps are shorter."""
HEARTBEAT_S: Final = 0.5
"""Without changes, an update comes this often: an idle loop wakes up twice a second."""
MAX_LINES: Final = 8
"""What is left after so many updates of changes comes with the next ones."""


class PrefixPublisher:
    """`epoch`: number of this start of the engine. Times are in seconds of the loop's clock."""

    def __init__(
        self, scheduler: Scheduler, epoch: int, *, keys_per_line: int = KEYS_PER_LINE
    ) -> None:
        self._scheduler = scheduler
        self._keys = scheduler.prefix_keys
        self._epoch = epoch
        self._keys_per_line = keys_per_line
        self._sequence = 0
        self._load = Load()
        self._due_at = math.inf
        self._told_at = -math.inf
        self._wants_snapshot = False
        self._worked = False
        """Whether the loop has done something since the last look."""

    def watch(self) -> None:
        """Publish from now on. The next update is a snapshot."""
        self._wants_snapshot, self._due_at = True, -math.inf

    def wait_s(self, wait_s: float) -> float:
        """How long an idle loop may wait that wants to wait for `wait_s`."""
        waits = self._due_at < math.inf and (self._worked or self._keys.has_changes)
        return min(wait_s, INTERVAL_S) if waits else wait_s

    def updates(self, now: float) -> Sequence[PrefixUpdate]:
        """What is to be published now."""
        if now < self._due_at:
            self._worked = True
            return ()
        self._worked = False
        load = self._scheduler.load()
        updates = self._snapshot(load) if self._wants_snapshot else self._changes(load)
        if not updates and (load != self._load or now - self._told_at >= HEARTBEAT_S):
            updates = [PrefixUpdate(self._epoch, self._sequence, load=load)]
        if updates:
            self._load, self._told_at = load, now
        self._due_at = now + INTERVAL_S
        return updates

    def _snapshot(self, load: Load) -> list[PrefixUpdate]:
        self._wants_snapshot = False
        self._sequence += self._keys.has_changes
        self._keys.drop_changes()
        keys = self._keys.tokens
        told = {"epoch": self._epoch, "sequence": self._sequence}
        return list(snapshot(keys, **told, load=load, keys_per_line=self._keys_per_line))

    def _changes(self, load: Load) -> list[PrefixUpdate]:
        found: list[PrefixUpdate] = []
        while self._keys.has_changes and len(found) < MAX_LINES:
            added, removed = self._keys.take_changes(self._keys_per_line)
            if added or removed:
                self._sequence += 1
                found.append(PrefixUpdate(self._epoch, self._sequence, added, removed, load))
        return found
