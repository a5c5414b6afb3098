"""Device tables for the processing of logits: a line for each slot, allocated when first needed.

A line is written from the sequence's earlier tokens when the sequence starts in its slot. After
each draw the token is recorded on the device, so that a step can be launched before the previous
one is collected.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

import yaie_kernels as ops
from yaie.core.batch import SlotInit
from yaie.core.request import MAX_BAD_WORD_TOKENS
from yaie.runtime.sampling.metadata import lasting, mask_of
from yaie.runtime.tensors.inputs import Ints
from yaie.runtime.tensors.transfer import upload
from yaie_api.resource.capacity import LOGIT_MASKS
from yaie_kernels import logit_flags

LIST_WIDTH = 8
"""Initial number of biases and banned words that a slot can hold; it grows in powers of two."""
if MAX_BAD_WORD_TOKENS > logit_flags.WORD_TOKENS:
    raise ImportError("kernels remember fewer tokens than a bad word may have")
if logit_flags.MASKS != LOGIT_MASKS:
    raise ImportError("memory is reserved for another number of masks than kernels read")


class LogitsState:
    """Tables by slot; shapes and meaning as in `yaie_kernels.ops`.

    Args:
        rows: number of slots.
        vocab_size: width of the logits.
        device: where the tables live.

    """

    def __init__(self, rows: int, vocab_size: int, device: torch.device) -> None:
        self.rows = rows
        self.vocab_size = vocab_size
        self.device = device
        self.masks: torch.Tensor | None = None
        self.seen: torch.Tensor | None = None
        self.penalties: torch.Tensor | None = None
        self.biases: tuple[torch.Tensor, torch.Tensor] | None = None
        self.words: torch.Tensor | None = None
        self.recent: torch.Tensor | None = None

    # -- a sequence starts in its slot ------------------------------------------------------

    def start(self, inits: Sequence[SlotInit]) -> None:
        """Write the lines of sequences that start in slots.

        Raises:
            ValueError: a sequence lacks the `history` that its sampling needs.
            torch.OutOfMemoryError: a table does not fit.

        """
        self._start_masks(inits)
        self._start_past(_wanting(logit_flags.PENALTIES, inits))
        self._start_biases(_wanting(logit_flags.BIASES, inits))
        self._start_words(_wanting(logit_flags.BAD_WORDS, inits))

    def _start_masks(self, inits: Iterable[SlotInit]) -> None:
        lines: dict[int, NDArray[np.int32]] = {}
        for init in inits:
            allowed = init.sampling.allowed_token_ids
            if allowed is not None:
                lines[init.slot] = mask_of(allowed, self.vocab_size, allowed=True)
            if init.sampling.min_tokens and init.stop_ids:
                words = mask_of(init.stop_ids, self.vocab_size, allowed=False)
                lines[self.rows + init.slot] = words
        if lines:
            self._write_masks(_ints(lines), np.stack(list(lines.values())))

    def allow(self, slots: Ints, words: NDArray[np.int32]) -> None:
        """Set the grammar masks of `slots` [R] to `words` [R, ceil(vocab / 32)]."""
        self._write_masks(2 * self.rows + slots, words)

    def _write_masks(self, lines: Ints, words: NDArray[np.int32]) -> None:
        if self.masks is None:
            width = -(-self.vocab_size // 32)
            self.masks = self._table((logit_flags.MASKS, self.rows, width), torch.int32)
        index, values = upload((lines, np.ascontiguousarray(words)), self.device)
        flat = self.masks.flatten(0, 1)
        flat.index_copy_(0, index.long(), values.view(len(lines), -1))

    def _start_past(self, inits: Sequence[SlotInit]) -> None:
        """Count the tokens of the prompts and of the outputs so far."""
        if not inits:
            return
        if self.seen is None or self.penalties is None:
            self.penalties = self._table((3, self.rows), torch.float32)
            self.seen = self._table((self.rows, self.vocab_size), torch.int32)
        pasts = [_past(init) for init in inits]
        slots, factors, lines, tokens, amounts = upload(
            (
                _ints(init.slot for init in inits),
                np.array([_factors(init) for init in inits], dtype=np.float32),
                np.repeat(_ints(init.slot for init in inits), [len(past[0]) for past in pasts]),
                np.concatenate([past[0] for past in pasts]),
                np.concatenate([past[1] for past in pasts]),
            ),
            self.device,
        )
        self.penalties[:, slots.long()] = factors.view(torch.float32).view(-1, 3).T
        self.seen.index_fill_(0, slots.long(), 0)
        place = lines.long() * self.vocab_size + tokens
        self.seen.view(-1).index_add_(0, place, amounts)

    def _start_biases(self, inits: Sequence[SlotInit]) -> None:
        if not inits:
            return
        lists = [self._biases(init) for init in inits]
        width = max(map(len, lists))
        tokens, values = self.biases or (None, None)
        tokens = self._widened(tokens, (width,), torch.int32, fill=-1)
        values = self._widened(values, (width,), torch.float32, fill=0)
        self.biases = tokens, values
        ids = np.full((len(inits), tokens.shape[1]), -1, dtype=np.int32)
        amounts = np.zeros(ids.shape, dtype=np.float32)
        for line, biases in enumerate(lists):
            ids[line, : len(biases)] = list(biases.keys())
            amounts[line, : len(biases)] = list(biases.values())
        parts = upload((_ints(init.slot for init in inits), ids, amounts), self.device)
        slots = parts[0].long()
        tokens.index_copy_(0, slots, parts[1].view(ids.shape))
        values.index_copy_(0, slots, parts[2].view(torch.float32).view(ids.shape))

    def _biases(self, init: SlotInit) -> dict[int, float]:
        return {t: bias for t, bias in init.sampling.logit_bias if t < self.vocab_size}

    def _start_words(self, inits: Sequence[SlotInit]) -> None:
        if not inits:
            return
        lists = [self._words(init) for init in inits]
        most = max(map(len, lists))
        self.words = self._widened(
            self.words, (most, logit_flags.WORD_TOKENS), torch.int32, fill=logit_flags.ANY
        )
        self.recent = self._widened(
            self.recent, (logit_flags.WORD_TOKENS,), torch.int32, fill=logit_flags.NONE
        )
        patterns = np.full((len(inits), *self.words.shape[1:]), logit_flags.ANY, dtype=np.int32)
        for line, words in enumerate(lists):
            for number, word in enumerate(words):
                patterns[line, number, -len(word) :] = word
        last = np.stack([_last_tokens(init) for init in inits])
        parts = upload((_ints(init.slot for init in inits), patterns, last), self.device)
        slots = parts[0].long()
        self.words.index_copy_(0, slots, parts[1].view(patterns.shape))
        self.recent.index_copy_(0, slots, parts[2].view(last.shape))

    def _words(self, init: SlotInit) -> list[tuple[int, ...]]:
        return [word for word in init.sampling.bad_words_ids if max(word) < self.vocab_size]

    # -- a draw -----------------------------------------------------------------------------

    def adjust(
        self, logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, wanted: Ints
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Return changed logits [S, vocab] float32 and the flags [S] on the device, for `remember`.

        Args:
            logits: [S, vocab] of the model, any float dtype; not modified.
            slots: [S] int64.
            positions: [S] int64 of the tokens to draw.
            wanted: [S] bits of `yaie_kernels.logit_flags`.

        """
        union = int(np.bitwise_or.reduce(wanted))
        (bits,) = upload((wanted,), self.device)
        masks = (
            self.masks
            if union & (logit_flags.ALLOWED | logit_flags.MIN_TOKENS | logit_flags.GRAMMAR)
            else None
        )
        seen = self.seen if union & logit_flags.PENALTIES else None
        adjusted = ops.adjust_logits(logits, slots, bits, masks, seen, self.penalties)
        if union & logit_flags.BIASES and self.biases is not None:
            ops.add_biases_(adjusted, slots, bits, *self.biases)
        if union & logit_flags.BAD_WORDS and self.words is not None and self.recent is not None:
            ops.ban_words_(adjusted, slots, positions, bits, self.words, self.recent)
        return adjusted, bits

    def remember(
        self,
        tokens: torch.Tensor,
        slots: torch.Tensor,
        positions: torch.Tensor,
        bits: torch.Tensor,
    ) -> None:
        """Record the sampled tokens [S] where later draws depend on them."""
        if self.seen is not None or self.recent is not None:
            ops.remember_(tokens, slots, positions, bits, self.seen, self.recent)

    def _table(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _widened(
        self, table: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, *, fill: int
    ) -> torch.Tensor:
        """A table whose lines hold at least `shape`. All lines are as long as the longest list so
        far.
        """
        if table is not None and table.shape[1] >= shape[0]:
            return table
        width = max(LIST_WIDTH, 1 << (shape[0] - 1).bit_length())
        wider = torch.full((self.rows, width, *shape[1:]), fill, dtype=dtype, device=self.device)
        if table is not None:
            wider[:, : table.shape[1]] = table
        return wider


def _wanting(bit: int, inits: Iterable[SlotInit]) -> list[SlotInit]:
    return [init for init in inits if lasting(init.sampling) & bit]


def _history(init: SlotInit) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if init.history is None:
        raise ValueError("a sequence whose sampling looks at the past comes without it")
    return init.history


def _past(init: SlotInit) -> tuple[Ints, Ints]:
    """Tokens and what each adds to `seen`: 1 for an id of the prompt, 2 for one of the output."""
    prompt, output = _history(init)
    known = np.unique(np.array(prompt, dtype=np.int32))
    tokens = np.concatenate((known, np.array(output, dtype=np.int32)))
    return tokens, np.repeat(np.array([1, 2], dtype=np.int32), [len(known), len(output)])


def _last_tokens(init: SlotInit) -> Ints:
    """The output's last tokens, each in column position % WORD_TOKENS."""
    output = _history(init)[1]
    tokens = np.full(logit_flags.WORD_TOKENS, logit_flags.NONE, dtype=np.int32)
    first = max(0, len(output) - logit_flags.WORD_TOKENS)
    for position, token in enumerate(output[first:], start=init.prompt_tokens + first):
        tokens[position % logit_flags.WORD_TOKENS] = token
    return tokens


def _factors(init: SlotInit) -> tuple[float, float, float]:
    sampling = init.sampling
    return sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int32)
