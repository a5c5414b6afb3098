"""An engine double without torch: a runner with real pages and slots and a made-up model.

It stores the token of every computed position in the page that the batch names, and predicts from
what it reads back through the block table. So a scheduler that hands out a page twice, trusts a
page too early or mixes up slots gives wrong tokens, as a real model would.
"""

import time
import zlib
from array import array
from collections.abc import Callable, Sequence

from yaie.core.batch import Batch, Row, SlotInit, StepResult
from yaie.core.blocks import SCRATCH_PAGE
from yaie.runtime.loop import TokenMasks

Predict = Callable[[Sequence[int], SlotInit], int]
"""Next token from the whole context (token ids) and the slot's sampling parameters and seed."""


def hashed(vocab_size: int) -> Predict:
    """A deterministic model: the next token is a hash of the context, and of the seed if any."""

    def predict(context: Sequence[int], init: SlotInit) -> int:
        seed = 0 if init.sampling.greedy else init.seed & 0xFFFFFFFF
        return zlib.crc32(array("q", context).tobytes(), seed) % vocab_size

    return predict


def scripted(tokens: Sequence[int]) -> Predict:
    """A model that says `tokens` over and over, starting where the prompt ends."""
    lengths: dict[int, int] = {}

    def predict(context: Sequence[int], init: SlotInit) -> int:
        start = lengths.setdefault(init.seq_id, len(context))
        return tokens[(len(context) - start) % len(tokens)]

    return predict


class _Slot:
    """A running sequence as the device sees it."""

    def __init__(self, init: SlotInit) -> None:
        self.init = init
        self.tables = [list(pages) for pages in init.pages]
        self.last_token: int | None = None


class _Ticket:
    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.tokens: tuple[int, ...] = ()


class StubRunner:
    """Implements `loop.Runner`.

    Args:
        predict: the made-up model.
        page_size: tokens in one page.
        depth: steps in flight beyond the one being built.
        step_s: seconds that collecting a step takes.
        token_s: seconds for each token of the step on top.
        sleep: how to let time pass.

    """

    def __init__(
        self,
        predict: Predict,
        *,
        page_size: int = 16,
        depth: int = 0,
        step_s: float = 0.0,
        token_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.depth = depth
        self._predict = predict
        self._page_size = page_size
        self._step_s = step_s
        self._token_s = token_s
        self._sleep = sleep
        self._slots: dict[int, _Slot] = {}
        self._cache: dict[tuple[int, int], list[int]] = {}

    def launch(self, batch: Batch) -> _Ticket:
        """Apply the batch's changes and write the tokens of its rows into their pages."""
        for slot in batch.releases:
            self._slots.pop(slot, None)
        for init in batch.inits:
            self._slots[init.slot] = _Slot(init)
        for append in batch.appends:
            self._slots[append.slot].tables[append.group].extend(append.pages)
        for copy in batch.copies:
            self._cache[copy.group, copy.target] = list(self._cache[copy.group, copy.source])
        for row in batch.rows:
            self._write(row)
        return _Ticket(batch)

    def sample(self, ticket: _Ticket, masks: TokenMasks | None = None) -> None:  # noqa: ARG002 - scripted tokens obey no grammar
        """Predict for the rows that sample; each slot remembers its last token."""
        ticket.tokens = tuple(
            self._sample_row(row) if row.sample else -1 for row in ticket.batch.rows
        )

    def collect(self, ticket: _Ticket) -> StepResult:
        """The tokens, once the step's time has passed."""
        if (seconds := self._step_s + self._token_s * ticket.batch.n_tokens) > 0:
            self._sleep(seconds)
        return StepResult(
            ticket.batch.step_id, ticket.tokens, tuple(True for _ in ticket.batch.rows)
        )

    def _write(self, row: Row) -> None:
        slot = self._slots[row.slot]
        if slot.init.seq_id != row.seq_id:
            raise AssertionError(f"slot {row.slot} belongs to sequence {slot.init.seq_id}")
        tokens = row.tokens
        if not tokens:
            if slot.last_token is None:
                raise AssertionError(f"slot {row.slot} has no sampled token to go on from")
            tokens = (slot.last_token,)
        if len(tokens) != row.n_tokens:
            raise AssertionError(f"row of {row.n_tokens} tokens brings {len(tokens)}")
        for group, table in enumerate(slot.tables):
            for position, token in enumerate(tokens, row.start):
                page = table[position // self._page_size]
                if page == SCRATCH_PAGE:
                    raise AssertionError(f"slot {row.slot} was given the scratch page")
                stored = self._cache.setdefault((group, page), [-1] * self._page_size)
                stored[position % self._page_size] = token

    def _sample_row(self, row: Row) -> int:
        slot = self._slots[row.slot]
        slot.last_token = self._predict(self._context(row), slot.init)
        return slot.last_token

    def _context(self, row: Row) -> list[int]:
        """What the pages of the row's sequence say up to its end; all groups must agree."""
        length = row.start + row.n_tokens
        contexts = [
            [token for page in table for token in self._cache.get((group, page), ())][:length]
            for group, table in enumerate(self._slots[row.slot].tables)
        ]
        if any(context != contexts[0] for context in contexts):
            raise AssertionError(f"layer groups of slot {row.slot} hold different tokens")
        return contexts[0]
