"""Driving a ModelRunner by hand-made Batches: pages handed out in order, no scheduler."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import torch

from yaie.checkpoint import weights
from yaie.checkpoint.source import read_config
from yaie.core.batch import Batch, PageAppend, Row, SlotInit
from yaie.core.request import SamplingParams
from yaie.layers.options import TensorOptions
from yaie.model_config import parser as model_config
from yaie.model_config.decoder_config import with_mla_form
from yaie.model_config.moe import MLAForm
from yaie.models import registry
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie.runtime.worker.runner import ModelRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=64)


def load_runner(
    folder: Path,
    *,
    pages: int = 64,
    page_size: int = 16,
    max_num_seqs: int = 8,
    mla_form: MLAForm = "absorbed",
    device: str = "cpu",
    graphs: bool = False,
) -> ModelRunner:
    """Build a float32 runner over the checkpoint in `folder`."""
    config = with_mla_form(model_config.parse(read_config(folder)), mla_form)
    options = TensorOptions(torch.device(device), torch.float32)
    with torch.inference_mode():
        model = registry.model_class(config.architecture)(config, options, config.max_positions)
    weights.load(model, folder)
    kv = KVTensors(model.caches, pages, page_size, options)
    runner = ModelRunner(
        model,
        kv,
        max_num_seqs=max_num_seqs,
        max_model_len=config.max_positions,
        capture_graphs=graphs,
    )
    runner.warm_up()
    return runner


class Hand:
    """Runs sequences by hand. `tokens[i]` grows by what is sampled; `logits[i][p]` predicts p."""

    def __init__(self, runner: ModelRunner, sampling: SamplingParams = GREEDY) -> None:
        self.runner = runner
        self.sampling = sampling
        self.tokens: dict[int, list[int]] = {}
        self.computed: dict[int, int] = {}
        self.pages: dict[int, list[int]] = {}
        self.logits: dict[int, dict[int, torch.Tensor]] = {}
        self.finite: dict[int, bool] = {}
        self._next_page = count(1)
        self._steps = count()
        self._inits: list[SlotInit] = []
        self._appends: list[PageAppend] = []

    def start(
        self,
        seq: int,
        prompt: Sequence[int],
        *,
        sampling: SamplingParams | None = None,
        seed: int = 0,
        shared_pages: Sequence[int] = (),
    ) -> None:
        """Enter a sequence into slot `seq`, its first pages taken over from another one."""
        self.tokens[seq] = list(prompt)
        self.computed[seq] = len(shared_pages) * self.runner.kv.page_size
        self.pages[seq] = list(shared_pages)
        self.logits[seq] = {}
        self._inits.append(
            SlotInit(seq, seq, sampling or self.sampling, seed, (tuple(shared_pages),))
        )

    def step(self, chunks: dict[int, int]) -> None:
        """Run `chunks[seq]` tokens of each sequence, decodes first, and sample where complete."""
        rows = [self._row(seq, n_tokens) for seq, n_tokens in chunks.items()]
        rows.sort(key=lambda row: len(row.tokens) > 0)
        batch = Batch(
            next(self._steps), (), tuple(self._inits), tuple(self._appends), (), tuple(rows)
        )
        self._inits, self._appends = [], []
        handle = self.runner.launch(batch)
        if handle.logits is not None:
            sampled = [row for row in rows if row.sample]
            for row, logits in zip(sampled, handle.logits, strict=True):
                self.logits[row.seq_id][row.start + row.n_tokens] = logits.cpu().clone()
        self.runner.sample(handle)
        result = self.runner.collect(handle)
        assert result.step_id == batch.step_id
        for row, token, finite in zip(rows, result.tokens, result.finite, strict=True):
            assert (token >= 0) == row.sample
            self.finite[row.seq_id] = finite
            if row.sample:
                self.tokens[row.seq_id].append(token)

    def decode(self, *seqs: int, steps: int = 1) -> None:
        """Run `steps` decode steps of the sequences together."""
        for _ in range(steps):
            self.step(dict.fromkeys(seqs, 1))

    def _row(self, seq: int, n_tokens: int) -> Row:
        start, known = self.computed[seq], self.tokens[seq]
        end = start + n_tokens
        self._grow(seq, end)
        self.computed[seq] = end
        decoding = end == len(known) and n_tokens == 1 and bool(self.logits[seq])
        ids = () if decoding else tuple(known[start:end])
        return Row(seq, seq, 0, start, n_tokens, ids, end == len(known))

    def _grow(self, seq: int, tokens: int) -> None:
        missing = -(-tokens // self.runner.kv.page_size) - len(self.pages[seq])
        if missing > 0:
            fresh = tuple(next(self._next_page) for _ in range(missing))
            self.pages[seq].extend(fresh)
            self._appends.append(PageAppend(seq, 0, fresh))
