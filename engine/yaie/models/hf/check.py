"""The check at load: compares our logits with those of transformers' own forward pass.

The unit of comparison is the model's rounding noise: how much its logits change if every layer's
output is perturbed by at most one rounding error of its dtype. Two correct computations of a model
differ by about that much; an incorrect one (a lost mask, positions off by one, tokens of another
sequence) by far more. This works for any weights and dtype, while a fixed tolerance would be too
strict for large weights and too lax for small ones.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from yaie.layers.attention import Segment, StepInput
from yaie.models.hf.errors import UnfitError
from yaie.models.model import DecoderModel

RMS_RATIO, MAX_RATIO = 4.0, 8.0
"""Allowed errors as multiples of the noise. Measured on tiny models with large weights: correct
computations reach 3.4 (mixtures of experts in bfloat16, where noise changes routes), most stay
below 2; positions off by one or another sequence's tokens give 10,000 and more in float32, and 4.9
to 45 in bfloat16.
"""
NOISE_DRAWS = 2
Logits = Sequence[torch.Tensor]
"""For each sequence the logits after each of its tokens, [T, vocab]."""


def sequences(config: Any, lengths: Sequence[int], vocab_size: int) -> list[torch.Tensor]:
    """Random token ids [T] for each length, without the special ids in the configuration."""
    values = [value for name, value in vars(config).items() if name.endswith("token_id")]
    named = {token for value in values for token in (value if isinstance(value, list) else [value])}
    usable = torch.tensor([token for token in range(min(vocab_size, 4096)) if token not in named])
    generator = torch.Generator().manual_seed(0)
    return [
        usable[torch.randint(len(usable), (length,), generator=generator)] for length in lengths
    ]


class Yardstick:
    """transformers' own logits for some sequences, and the size of their rounding noise."""

    def __init__(self, model: Any, ids: Sequence[torch.Tensor]) -> None:
        self.ids = [tokens.to(model.device) for tokens in ids]
        self.exact = [_forward(model, tokens) for tokens in self.ids]
        if not all(bool(logits.isfinite().all()) for logits in self.exact):
            raise UnfitError("its own logits are not finite")
        layers = _layers(model, self.ids[0])
        moved = []
        for seed in range(NOISE_DRAWS):
            with _noise(layers, seed, model.device):
                moved += [_forward(model, tokens) for tokens in self.ids]
        self._rms, self._largest = _distance(moved, self.exact * NOISE_DRAWS)

    def ratios(self, ours: Logits) -> tuple[float, float]:
        """RMS and largest error of `ours` as multiples of the noise."""
        rms, largest = _distance(ours, self.exact)
        return _ratio(rms, self._rms), _ratio(largest, self._largest)

    def judge(self, ours: Logits) -> None:
        """Check that the error of `ours` is within the allowed multiples of the noise.

        Raises:
            UnfitError: it is not.

        """
        rms, largest = self.ratios(ours)
        if not (rms <= RMS_RATIO and largest <= MAX_RATIO):
            raise UnfitError(
                f"the self-check failed (its error is {rms:.3g} times the rounding noise)"
            )


def _ratio(error: float, noise: float) -> float:
    """The error as a multiple of the noise: NaN gives infinity, no error gives 0."""
    if error == 0.0:
        return 0.0
    return error / noise if noise > 0.0 and error < math.inf else math.inf


def _forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids.unsqueeze(0), use_cache=False).logits
    return logits[0].float()


def _distance(ours: Logits, exact: Logits) -> tuple[float, float]:
    """Root mean square and largest difference over all logits."""
    differences = torch.cat([(a - b).flatten() for a, b in zip(ours, exact, strict=True)])
    return float(differences.square().mean().sqrt()), float(differences.abs().max())


@contextmanager
def _noise(layers: Sequence[nn.Module], seed: int, device: torch.device) -> Iterator[None]:
    """Context manager that perturbs the output of each layer by up to one rounding error."""
    generator = torch.Generator(device).manual_seed(seed)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        unit = torch.rand(tensor.shape, generator=generator, device=tensor.device) * 2 - 1
        return tensor + tensor * unit.to(tensor.dtype) * torch.finfo(tensor.dtype).eps

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        if isinstance(output, tuple | list) and isinstance(output[0], torch.Tensor):
            make = getattr(type(output), "_make", type(output))
            return make((moved(output[0]), *output[1:]))
        return moved(output) if isinstance(output, torch.Tensor) else None

    hooks = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()


def _layers(model: Any, ids: torch.Tensor) -> list[nn.Module]:
    """The decoder's layers: of all module lists that run for the text `ids` (an image encoder does
    not), the one with the most parameters.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    ran: set[nn.Module] = set()
    hooks = [
        layer.register_forward_hook(lambda module, _args, _output: ran.add(module))
        for layers in lists
        for layer in layers
    ]
    _forward(model, ids)
    for handle in hooks:
        handle.remove()
    lists = [layers for layers in lists if not ran.isdisjoint(layers)]
    if not lists:
        raise UnfitError("it has no list of layers")
    sizes = [sum(parameter.numel() for parameter in layers.parameters()) for layers in lists]
    return list(lists[sizes.index(max(sizes))])


PAGE_SIZE = 16
TABLES = ((3, 1), (2, 5, 4))
CHUNKS = ((20, 17), (1, 19), (1, 1))
"""Tokens of the two sequences per step: prefill of both, a decode and a chunk, two decodes."""
LENGTHS = (22, 37)


def prove_paged(model: DecoderModel, yardstick: Yardstick) -> None:
    """Run two sequences with our pages, one of them in chunks, and check the logits.

    Raises:
        UnfitError: the logits differ from transformers' own.

    """
    options = model.options
    caches = tuple(
        (
            options.zeros(1 + max(map(max, TABLES)), PAGE_SIZE, layer.heads, layer.key_size),
            options.zeros(1 + max(map(max, TABLES)), PAGE_SIZE, layer.heads, layer.value_size),
        )
        for layer in model.caches
    )
    ours: list[list[torch.Tensor]] = [[] for _ in TABLES]
    done = [0] * len(TABLES)
    for counts in CHUNKS:
        pieces = [ids[at : at + n] for ids, at, n in zip(yardstick.ids, done, counts, strict=True)]
        step = _paged_step(done, counts, caches, options.device)
        logits = model.logits(model.forward(torch.cat(pieces), step)).float()
        for mine, rows in zip(ours, torch.split(logits, list(counts)), strict=True):
            mine.append(rows)
        done = [at + n for at, n in zip(done, counts, strict=True)]
    yardstick.judge([torch.cat(rows) for rows in ours])


def _paged_step(
    done: Sequence[int], counts: Sequence[int], caches: Any, device: torch.device
) -> StepInput:
    """One step of all sequences; those with one token form a separate segment, as decodes do."""
    rows = range(len(counts))
    positions = [range(at, at + n) for at, n in zip(done, counts, strict=True)]
    slots = [
        TABLES[row][position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for row in rows
        for position in positions[row]
    ]
    decodes = [row for row in rows if counts[row] == 1]
    others = [row for row in rows if counts[row] > 1]
    return StepInput(
        torch.tensor([position for row in rows for position in positions[row]], device=device),
        torch.tensor(slots, device=device),
        tuple(
            _segment(first, part, done, counts, device)
            for first, part in ((0, decodes), (len(decodes), others))
            if part
        ),
        caches,
    )


def _segment(
    first: int,
    rows: Sequence[int],
    done: Sequence[int],
    counts: Sequence[int],
    device: torch.device,
) -> Segment:
    ends = [done[row] + counts[row] for row in rows]
    starts = [0, *accumulate(counts[row] for row in rows)]
    width = max(map(len, TABLES))
    tables = [[*TABLES[row], *[0] * (width - len(TABLES[row]))] for row in rows]
    return Segment(
        first=first,
        last=first + starts[-1],
        block_tables=torch.tensor(tables, dtype=torch.int32, device=device),
        seq_lens=torch.tensor(ends, dtype=torch.int32, device=device),
        query_start=torch.tensor(starts, dtype=torch.int32, device=device),
        max_query_len=max(counts[row] for row in rows),
        max_seq_len=max(ends),
    )


ALONE = ((9, 2, 1, 1, 3, 6), (20, 3, 2, 1, 10, 1))
"""Chunks of the two sequences when run one after the other. Chunks of two and three tokens are
shorter than the usual convolution of four, whose state they must not overwrite.
"""


def prove_cached(model: DecoderModel, yardstick: Yardstick) -> None:
    """Run the sequences one after the other, in chunks and single tokens, and check the logits.

    Raises:
        UnfitError: the logits differ from transformers' own.

    """
    ours = []
    for ids, counts in zip(yardstick.ids, ALONE, strict=True):
        done = 0
        rows = []
        for n in counts:
            step = StepInput(
                torch.arange(done, done + n, device=ids.device),
                torch.zeros(n, dtype=torch.int64, device=ids.device),
                (_segment(0, [0], [done], [n], ids.device),),
                (),
            )
            rows.append(model.logits(model.forward(ids[done : done + n], step)).float())
            done += n
        ours.append(torch.cat(rows))
    yardstick.judge(ours)
