"""A batch under construction. It only collects; `plan` decides what to add."""

from collections.abc import Iterable

from yaie.core.batch import Batch, PageAppend, PageCopy, Row, SlotInit
from yaie.core.scheduler.kv_cache_manager import Allocation
from yaie.core.sequence import Sequence


class BatchBuilder:
    """`budget`: prefill tokens that may still be added. `sequences` is aligned with `rows`."""

    __slots__ = ("appends", "budget", "copies", "inits", "rows", "sequences", "swap_in")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows: list[Row] = []
        self.sequences: list[Sequence] = []
        self.inits: list[SlotInit] = []
        self.appends: list[PageAppend] = []
        self.copies: list[PageCopy] = []
        self.swap_in: list[PageCopy] = []

    def start(self, sequence: Sequence, allocation: Allocation) -> None:
        """Start `sequence` in its slot with its pages, and add its first prefill chunk."""
        self.inits.append(sequence.slot_init())
        self.copies.extend(allocation.copies)
        self.swap_in.extend(allocation.swap_in)
        self.prefill(sequence)

    def append(self, sequence: Sequence, pages: tuple[int, ...]) -> None:
        """Append one page in each KV cache group to the block table of `sequence`."""
        for group, page in enumerate(pages):
            self.appends.append(PageAppend(sequence.slot, group, (page,)))

    def decode(self, sequence: Sequence) -> None:
        """Add a row with the last sampled token of `sequence`, which may still be in flight."""
        start = sequence.scheduled
        self.rows.append(Row(sequence.seq_id, sequence.slot, sequence.epoch, start, 1, (), True))
        self.sequences.append(sequence)
        sequence.scheduled = start + 1
        sequence.in_flight += 1

    def verify(self, sequence: Sequence, draft: Iterable[int]) -> None:
        """Add a row with the last token of `sequence`, which is committed, and its draft tokens."""
        start, ids = sequence.scheduled, (sequence.tokens[-1], *draft)
        epoch, n_draft = sequence.epoch, len(ids) - 1
        self.rows.append(
            Row(sequence.seq_id, sequence.slot, epoch, start, len(ids), ids, True, n_draft=n_draft)
        )
        self.sequences.append(sequence)
        sequence.scheduled = start + 1
        sequence.in_flight += 1
        self.budget -= len(ids)

    def prefill(self, sequence: Sequence) -> None:
        """Add a row with as many known tokens of `sequence` as the budget allows. The row with the
        last known token samples.
        """
        start = sequence.scheduled
        known = sequence.tokens
        end = min(start + self.budget, len(known))
        complete = end == len(known)
        sample = complete and sequence.samples
        targets: tuple[int, ...] = ()
        if sequence.prompt_logprobs is not None:
            targets = tuple(known[start + 1 : min(end + 1, sequence.n_prompt)])
        self.rows.append(
            Row(
                sequence.seq_id,
                sequence.slot,
                sequence.epoch,
                start,
                end - start,
                tuple(known[start:end]),
                sample,
                targets,
                sequence.request.pooling is not None,
            )
        )
        self.sequences.append(sequence)
        sequence.scheduled = end
        sequence.decoding = complete
        sequence.in_flight += sample
        self.budget -= end - start

    def batch(
        self, step_id: int, releases: tuple[int, ...], swap_out: tuple[PageCopy, ...]
    ) -> Batch:
        return Batch(
            step_id,
            releases,
            tuple(self.inits),
            tuple(self.appends),
            tuple(self.copies),
            tuple(self.rows),
            swap_out,
            tuple(self.swap_in),
        )
