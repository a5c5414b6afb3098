"""A reader's copy of the prefix keys that one engine has in its cache. Pure.

    not current ──snapshot──▶ current ──next change──▶ current
         ▲                       │
         └── a gap, a new epoch ─┘     then open the stream again: it begins with a snapshot

While the index is `current`, its keys are exactly those that the engine had at `(epoch, sequence)`.
After a gap it keeps the old keys, which are good guesses until the snapshot is there.
"""

import enum

from yaie_api.prefix.updates import Load, PrefixUpdate


class Outcome(enum.Enum):
    """What an update did."""

    APPLIED = "applied"
    """The index is as new as the update."""
    PARTIAL = "partial"
    """It is a part of a snapshot, of which more must come. The keys are still those from before."""
    STALE = "stale"
    """The index already knew, or knows better. Nothing changed."""
    NEEDS_SNAPSHOT = "needs_snapshot"
    """Something is missing between the index and the update."""


class PrefixIndex:
    """Which keys an engine has, and how many tokens each covers."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        """Tokens covered, by key. Only to read."""
        self.load = Load()
        self.epoch = 0
        self.sequence = 0
        self.current = False
        self._pending: dict[int, int] = {}
        self._next: tuple[int, int, int, int] | None = None
        """(epoch, sequence, parts, part) of the part that continues the snapshot under way."""

    def apply(self, update: PrefixUpdate) -> Outcome:
        """Bring the index up to date. `update` comes from one engine's stream, whatever was lost,
        doubled or out of order there.
        """
        if update.parts:
            outcome = self._take_part(update)
        else:
            self._next = None
            outcome = self._change(update)
        if outcome is not Outcome.STALE:
            self.load = update.load
        return outcome

    def _change(self, update: PrefixUpdate) -> Outcome:
        if not self.current:
            return Outcome.NEEDS_SNAPSHOT
        changes = bool(update.added or update.removed)
        if update.epoch == self.epoch:
            if update.sequence < self.sequence or (changes and update.sequence == self.sequence):
                return Outcome.STALE
            if update.sequence == self.sequence + changes:
                for key in update.removed:
                    self.tokens.pop(key, None)
                self.tokens.update(update.added)
                self.sequence = update.sequence
                return Outcome.APPLIED
        self.current = False
        return Outcome.NEEDS_SNAPSHOT

    def _take_part(self, update: PrefixUpdate) -> Outcome:
        here = (update.epoch, update.sequence, update.parts, update.part)
        if self.current and update.epoch == self.epoch and update.sequence <= self.sequence:
            self._next = None
            return Outcome.STALE
        if update.part == 0:
            self._pending = {}
        elif here != self._next:
            self._next, self.current = None, False
            return Outcome.NEEDS_SNAPSHOT
        self._pending.update(update.added)
        if update.part + 1 < update.parts:
            self._next = (*here[:3], update.part + 1)
            return Outcome.PARTIAL
        self.tokens, self._pending, self._next = self._pending, {}, None
        self.epoch, self.sequence, self.current = update.epoch, update.sequence, True
        return Outcome.APPLIED
