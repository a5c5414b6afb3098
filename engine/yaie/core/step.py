"""A batch under construction. It only collects; the `Scheduler` decides what goes in."""

from yaie.core.batch import Batch, PageAppend, Row, SlotInit
from yaie.core.sequence import Sequence


class Step:
    """`budget`: tokens that prefill may still add. `sequences` is aligned with `rows`."""

    __slots__ = ("appends", "budget", "inits", "rows", "sequences")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows: list[Row] = []
        self.sequences: list[Sequence] = []
        self.inits: list[SlotInit] = []
        self.appends: list[PageAppend] = []

    def start(self, sequence: Sequence) -> None:
        """`sequence` enters its slot with the pages it has."""
        pages = tuple(tuple(group) for group in sequence.owned_table.pages)
        sampling = sequence.request.sampling
        self.inits.append(SlotInit(sequence.slot, sequence.seq_id, sampling, sequence.seed, pages))

    def append(self, sequence: Sequence, pages: tuple[int, ...]) -> None:
        """`sequence` got one page in each layer group."""
        for group, page in enumerate(pages):
            self.appends.append(PageAppend(sequence.slot, group, (page,)))

    def decode(self, sequence: Sequence) -> None:
        """Run the last sampled token of `sequence`, which may still be in flight."""
        start = sequence.scheduled
        self.rows.append(Row(sequence.seq_id, sequence.slot, sequence.epoch, start, 1, (), True))
        self.sequences.append(sequence)
        sequence.scheduled = start + 1
        sequence.in_flight += 1
        self.budget -= 1

    def prefill(self, sequence: Sequence) -> None:
        """Run as many known tokens of `sequence` as the budget allows; the last one samples."""
        start = sequence.scheduled
        end = min(start + self.budget, len(sequence.tokens))
        sample = end == len(sequence.tokens)
        tokens = tuple(sequence.tokens[start:end])
        self.rows.append(
            Row(sequence.seq_id, sequence.slot, sequence.epoch, start, end - start, tokens, sample)
        )
        self.sequences.append(sequence)
        sequence.scheduled = end
        sequence.decoding = sample
        sequence.in_flight += sample
        self.budget -= end - start

    def batch(self, step_id: int, releases: tuple[int, ...]) -> Batch:
        return Batch(
            step_id, releases, tuple(self.inits), tuple(self.appends), (), tuple(self.rows)
        )
