"""An engine double without torch: a runner with real pages and slots and a made-up model.

It stores every computed position in the page that the batch names: its token and, as keys and
values of a real model do, a trace of all positions before it. It predicts from what it reads back
through the block table. So a scheduler that hands out a page twice, trusts a page too early, copies
or swaps the wrong one or mixes up slots gives wrong tokens, as a real model would.
"""

import struct
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from yaie.core.batch import Batch, PageCopy, Row, SlotInit, StepResult
from yaie.core.kv_cache.block_pool import SCRATCH_PAGE
from yaie.core.messages import TokenLogprobs
from yaie.runtime.loop.engine_loop import TokenMasks

T = TypeVar("T")
BROKEN_TOKEN = -2
"""What is read from a position that was computed after other tokens than those before it now."""

Predict = Callable[[Sequence[int], SlotInit], int]
"""Next token from the whole context (token ids) and the slot's sampling parameters and seed."""


M = TypeVar("M", Batch, StepResult)


def sent(message: M) -> M:
    """What arrives of a batch or a result that is sent to another process: all of it."""
    encoded = msgspec.msgpack.encode(message)
    arrived = msgspec.msgpack.decode(encoded, type=type(message))
    assert msgspec.msgpack.encode(arrived) == encoded
    return arrived


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


def score(context: Sequence[int], token: int, n_top: int) -> TokenLogprobs:
    """Made-up log-probabilities of `token` after `context`, with `n_top` others."""
    logprob = -(_hash(context) % 997) / 100
    return TokenLogprobs(token, logprob, 1, tuple(range(n_top)), (logprob,) * n_top)


def vector(context: Sequence[int], n_summed: int) -> bytes:
    """A made-up vector of `context`, of which `n_summed` positions went into a mean."""
    return struct.pack("<2f", _hash(context) % 997, n_summed)


class _Cell(NamedTuple):
    """Keys and values of one position: its token, and a trace of all up to it."""

    token: int
    trace: int


class _Slot:
    """A running sequence as the device sees it. `n_summed`: positions in the mean so far."""

    def __init__(self, init: SlotInit) -> None:
        self.init = init
        self.tables = [list(pages) for pages in init.pages]
        self.last_token: int | None = None
        self.n_summed = 0


class _StepHandle:
    """A step in flight. The lists are aligned with the batch's rows."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.tokens: tuple[int, ...] = ()
        self.more_tokens: list[tuple[int, ...]] = []
        self.logprobs: list[TokenLogprobs | None] = []
        self.prompt_logprobs: list[tuple[TokenLogprobs, ...] | None] = []
        self.pooled: list[bytes | None] = []


_Cells = dict[tuple[int, int], list[_Cell | None]]
"""The cells of a page, by layer group and page number."""


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
        self.put_off: list[Callable[[], None]] = []
        self._predict = predict
        self._page_size = page_size
        self._step_s = step_s
        self._token_s = token_s
        self._sleep = sleep
        self._slots: dict[int, _Slot] = {}
        self._cache: _Cells = {}
        self._host: _Cells = {}

    def warm_up_next(self) -> bool:
        """Do one of `put_off`."""
        if self.put_off:
            self.put_off.pop(0)()
        return bool(self.put_off)

    def launch(self, batch: Batch) -> _StepHandle:
        """Apply the batch's changes, in the order it prescribes, and compute its rows.

        The batch is encoded and decoded first, as it will be for a runner in another process.
        """
        batch = sent(batch)
        for slot in batch.releases:
            self._slots.pop(slot, None)
        _copy(batch.swap_out, self._cache, self._host)
        _copy(batch.swap_in, self._host, self._cache)
        for init in batch.inits:
            if init.slot in self._slots:
                raise AssertionError(f"slot {init.slot} is entered before it was given up")
            self._slots[init.slot] = _Slot(init)
        for append in batch.appends:
            self._slots[append.slot].tables[append.group].extend(append.pages)
        _copy(batch.copies, self._cache, self._cache)
        handle = _StepHandle(batch)
        for row in batch.rows:
            self._write(row)
            handle.prompt_logprobs.append(self._score(row) if row.targets else None)
            handle.pooled.append(self._pool(row) if row.pool else None)
        return handle

    def sample(self, handle: _StepHandle, masks: TokenMasks | None = None) -> None:
        """Predict for the rows that sample; each slot remembers its last token."""
        allowed = {} if masks is None else dict(zip(masks.rows, masks.words.tolist(), strict=True))
        tokens = []
        for number, row in enumerate(handle.batch.rows):
            token, *more = self._sample_row(row, allowed.get(number)) if row.sample else [-1]
            tokens.append(token)
            handle.more_tokens.append(tuple(more))
            wanted = self._slots[row.slot].init.sampling.logprobs if row.sample else None
            context = self._context(row) if wanted is not None else ()
            handle.logprobs.append(None if wanted is None else score(context, token, wanted))
        handle.tokens = tuple(tokens)

    def is_done(self, handle: _StepHandle) -> bool:
        """Steps are computed at launch; their time passes in `collect`."""
        return True

    def collect(self, handle: _StepHandle) -> StepResult:
        """The outcome, once the step's time has passed."""
        if (seconds := self._step_s + self._token_s * handle.batch.n_tokens) > 0:
            self._sleep(seconds)
        result = StepResult(
            handle.batch.step_id,
            handle.tokens,
            tuple(True for _ in handle.batch.rows),
            logprobs=_aligned(handle.logprobs),
            prompt_logprobs=_aligned(handle.prompt_logprobs),
            pooled=_aligned(handle.pooled),
            more_tokens=tuple(handle.more_tokens) if any(handle.more_tokens) else (),
        )
        return sent(result)

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
        for group in range(len(slot.tables)):
            trace = self._trace(slot, group, row.start - 1)
            for position, token in enumerate(tokens, row.start):
                trace = _hash((trace, token))
                self._store(slot, group, position, _Cell(token, trace))

    def _store(self, slot: _Slot, group: int, position: int, cell: _Cell) -> None:
        page = slot.tables[group][position // self._page_size]
        if page == SCRATCH_PAGE:
            raise AssertionError(f"slot {slot.init.slot} was given the scratch page")
        cells = self._cache.setdefault((group, page), [None] * self._page_size)
        cells[position % self._page_size] = cell

    def _trace(self, slot: _Slot, group: int, position: int) -> int:
        """The trace at a position; 0 before the first one and where nothing was computed."""
        if position < 0:
            return 0
        page = slot.tables[group][position // self._page_size]
        cell = self._cache.get((group, page), [None] * self._page_size)[position % self._page_size]
        return 0 if cell is None else cell.trace

    def _sample_row(self, row: Row, allowed: list[int] | None) -> list[int]:
        """The tokens that count: of a row with a draft, those after its right guesses, too."""
        slot, context = self._slots[row.slot], self._context(row)
        drawn: list[int] = []
        for length in range(len(context) - row.n_draft, len(context) + 1):
            token = self._predict(context[:length], slot.init)
            drawn.append(token if allowed is None else next_allowed(token, allowed))
            if context[length : length + 1] != drawn[-1:]:
                break
        slot.last_token = drawn[-1]
        return drawn

    def _score(self, row: Row) -> tuple[TokenLogprobs, ...]:
        context = self._context(row)
        n_top = self._slots[row.slot].init.sampling.prompt_logprobs or 0
        return tuple(
            score(context[: row.start + offset], target, n_top)
            for offset, target in enumerate(row.targets, 1)
        )

    def _pool(self, row: Row) -> bytes | None:
        slot = self._slots[row.slot]
        slot.n_summed += row.n_tokens
        if row.start + row.n_tokens < slot.init.prompt_tokens:
            return None
        return vector(self._context(row), slot.n_summed if slot.init.pooling == "mean" else 0)

    def _context(self, row: Row) -> list[int]:
        """What the pages of the row's sequence say up to its end; all groups must agree."""
        length = row.start + row.n_tokens
        contexts = [self._read(table, group, length) for group, table in self._tables(row)]
        if any(context != contexts[0] for context in contexts):
            raise AssertionError(f"layer groups of slot {row.slot} hold different tokens")
        return contexts[0]

    def _tables(self, row: Row) -> list[tuple[int, list[int]]]:
        return list(enumerate(self._slots[row.slot].tables))

    def _read(self, table: list[int], group: int, length: int) -> list[int]:
        """Tokens of the first `length` positions, each checked against its trace."""
        tokens, trace = [], 0
        empty: list[_Cell | None] = [None] * self._page_size
        for page in table[: -(-length // self._page_size)]:
            for cell in self._cache.get((group, page), empty):
                trace = _hash((trace, cell.token)) if cell else -1
                intact = cell is not None and cell.trace == trace
                tokens.append(cell.token if cell and intact else BROKEN_TOKEN)
        return tokens[:length]


def next_allowed(token: int, words: Sequence[int]) -> int:
    """`token` if its bit is set in the 32-bit `words`, else the next one that is, cyclically."""
    n_bits = 32 * len(words)
    for offset in range(n_bits):
        candidate = (token + offset) % n_bits
        if words[candidate // 32] >> (candidate % 32) & 1:
            return candidate
    raise ValueError("no token is allowed")


def _hash(values: Sequence[int]) -> int:
    return zlib.crc32(array("q", values).tobytes())


def _copy(copies: Sequence[PageCopy], source: _Cells, target: _Cells) -> None:
    """All reads come before all writes, so that the order of the copies does not matter."""
    read = [source.get((copy.group, copy.source)) for copy in copies]
    for copy, cells in zip(copies, read, strict=True):
        if cells is None:  # nothing was ever written there, and that is what arrives
            target.pop((copy.group, copy.target), None)
        else:
            target[copy.group, copy.target] = list(cells)


def _aligned(values: list[T | None]) -> tuple[T | None, ...]:
    """Empty where no row has one, as the runner's contract has it."""
    return tuple(values) if any(value is not None for value in values) else ()
