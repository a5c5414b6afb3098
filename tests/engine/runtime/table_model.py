"""A model that is a table: the logits after a token are that token's line. And its textbook oracle.

Nothing but the sampler stands between the table and the tokens, so every answer can be worked out
by hand: `oracle` does so, one token at a time, in plain Python.
"""

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import torch

from yaie.core.batch import Batch, PageAppend, Row, SlotInit, StepResult
from yaie.core.messages import Pooling
from yaie.core.request import SamplingParams
from yaie.layers.attention import StepInput
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import TensorOptions
from yaie.runtime.loop.engine_loop import TokenMasks
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie.runtime.worker.runner import ModelRunner, StepHandle
from yaie_kernels import reference

VOCAB = 70
PAGE = 4
EOS = (2, 68)


class TableModel:
    """Hidden states and logits after token t are `table[t]`."""

    architecture = "Table"
    vocab_size = hidden_size = VOCAB
    num_labels = 3
    caches = (LayerCache(1, 2, 2),)

    def __init__(self, device: str = "cpu", scale: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(11)
        self.options = TensorOptions(torch.device(device), torch.float32)
        table = torch.randn(VOCAB, VOCAB, generator=generator) * scale
        self.table = table.fill_diagonal_(-3.0).to(device)  # no token repeats itself for ever

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        return self.table[ids]

    def shortened(self) -> "TableModel":
        return self

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.clone()

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[:, : self.num_labels] * 2

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "table", self.table


def table_runner(device: str = "cpu", *, graphs: bool = True, seqs: int = 6) -> ModelRunner:
    model = TableModel(device)
    kv = KVTensors(model.caches, 200, PAGE, model.options, host_pages=16)
    return ModelRunner(model, kv, max_num_seqs=seqs, max_model_len=120, capture_graphs=graphs)


class Drive:
    """Steps sequences by hand; slot = sequence id. `tokens[slot]` is what is known of each."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.tokens: dict[int, list[int]] = {}
        self.n_prompt: dict[int, int] = {}
        self._computed: dict[int, int] = {}
        self._pages: dict[int, int] = {}
        self._next_page = count(1)
        self._steps = count()
        self._inits: list[SlotInit] = []

    def start(
        self,
        slot: int,
        prompt: Sequence[int],
        sampling: SamplingParams,
        *,
        seed: int = 0,
        output: Sequence[int] = (),
        pooling: Pooling | None = None,
    ) -> None:
        """Enter a sequence, or one that was preempted after `output`."""
        self.tokens[slot] = [*prompt, *output]
        self.n_prompt[slot] = len(prompt)
        self._computed[slot] = self._pages[slot] = 0
        self._inits.append(
            SlotInit(
                slot,
                slot,
                sampling,
                seed,
                ((),),
                stop_ids=(*EOS, *sampling.stop_token_ids),
                prompt_tokens=len(prompt),
                history=(tuple(prompt), tuple(output)),
                pooling=pooling,
            )
        )

    def output(self, slot: int) -> list[int]:
        return self.tokens[slot][self.n_prompt[slot] :]

    def launch(self, rows: Sequence[Row]) -> StepHandle:
        """Launch a step; who starts, starts now."""
        appends = [pages for row in rows if (pages := self._grow(row)) is not None]
        inits, self._inits = tuple(self._inits), []
        rows = sorted(rows, key=lambda row: bool(row.tokens))
        batch = Batch(next(self._steps), (), inits, tuple(appends), (), tuple(rows))
        return self.runner.launch(batch)

    def rows(self, *slots: int, chunk: int = 1000, **options: object) -> list[Row]:
        """The next row of each: a chunk of what is known, or the token in flight."""
        return [self._row(slot, chunk, options) for slot in slots]

    def step(self, *slots: int, masks: TokenMasks | None = None, chunk: int = 1000) -> StepResult:
        """Run the slots by one step and take what was drawn."""
        rows = sorted(self.rows(*slots, chunk=chunk), key=lambda row: bool(row.tokens))
        handle = self.launch(rows)
        self.runner.sample(handle, masks)
        result = self.runner.collect(handle)
        for row, token in zip(rows, result.tokens, strict=True):
            if row.sample:
                self.tokens[row.slot].append(token)
        return result

    def run(self, *slots: int, steps: int) -> None:
        for _ in range(steps):
            self.step(*slots)

    def _row(self, slot: int, chunk: int, options: dict[str, object]) -> Row:
        known, start = self.tokens[slot], self._computed[slot]
        ids = tuple(known[start : start + chunk])
        decoding = start >= self.n_prompt[slot] and start + len(ids) == len(known) and start > 0
        n_tokens = max(1, len(ids))
        self._computed[slot] = end = start + n_tokens
        fields: dict[str, object] = {"sample": end >= len(known)} | options
        return Row(slot, slot, 0, start, n_tokens, () if decoding else ids, **fields)  # type: ignore[arg-type]  # fields of Row by name

    def _grow(self, row: Row) -> PageAppend | None:
        missing = -(-(row.start + row.n_tokens) // PAGE) - self._pages[row.slot]
        if missing <= 0:
            return None
        self._pages[row.slot] += missing
        return PageAppend(row.slot, 0, tuple(next(self._next_page) for _ in range(missing)))


def processed(
    logits: torch.Tensor,
    prompt: Sequence[int],
    output: Sequence[int],
    sampling: SamplingParams,
    allowed: Sequence[int] | None = None,
) -> torch.Tensor:
    """The logits [vocab] after everything up to the logit bias, one token at a time."""
    result = logits.numpy().copy()
    for token in range(VOCAB):
        result[token] = _penalised(result[token], token, prompt, output, sampling)
    for token, bias in sampling.logit_bias:
        result[token] += np.float32(bias)
    for token in range(VOCAB):
        if _forbidden(token, output, sampling, allowed):
            result[token] = -np.inf
    return torch.from_numpy(result)


def _penalised(
    x: np.float32,
    token: int,
    prompt: Sequence[int],
    output: Sequence[int],
    sampling: SamplingParams,
) -> np.float32:
    repetition, frequency, presence = map(
        np.float32,
        (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty),
    )
    if token in prompt or token in output:
        x = x / repetition if x > 0 else x * repetition
    x -= frequency * np.float32(list(output).count(token))
    return x - presence if token in output else x


def _forbidden(
    token: int, output: Sequence[int], sampling: SamplingParams, allowed: Sequence[int] | None
) -> bool:
    if allowed is not None and token not in allowed:
        return True
    if sampling.allowed_token_ids is not None and token not in sampling.allowed_token_ids:
        return True
    ends = (*EOS, *sampling.stop_token_ids)
    if len(output) < sampling.min_tokens and token in ends:
        return True
    text = (*output, token)
    return any(text[-len(word) :] == word for word in sampling.bad_words_ids)


def oracle(
    prompt: Sequence[int],
    sampling: SamplingParams,
    steps: int,
    *,
    seed: int = 0,
    allowed: Sequence[int] | None = None,
) -> list[int]:
    """The tokens that a sequence must have, worked out alone."""
    table, output = TableModel().table, []
    for _ in range(steps):
        last = [*prompt, *output][-1]
        logits = processed(table[last], prompt, output, sampling, allowed)
        position = torch.tensor([len(prompt) + len(output)])
        drawn, _, _ = reference.sample(
            logits.unsqueeze(0),
            torch.tensor([sampling.temperature]),
            torch.tensor([max(0, sampling.top_k)], dtype=torch.int32),
            torch.tensor([sampling.top_p]),
            torch.tensor([sampling.min_p]),
            torch.tensor([seed]),
            position,
        )
        output.append(int(drawn))
    return output
