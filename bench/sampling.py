"""What sampling costs on a GPU at a large vocabulary: `python bench/sampling.py [--vocab N]`.

Times of one step's work on the logits, median of replays between events: drawing with each filter,
each change of the logits, and log-probabilities. The logits are as peaked as a model's.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

import yaie_kernels as ops
from yaie.core.batch import SlotInit
from yaie.core.request import SamplingParams
from yaie.runtime.sampling.logits_state import LogitsState
from yaie.runtime.sampling.logprobs import score
from yaie.runtime.sampling.metadata import lasting
from yaie_kernels import logit_flags

FILTERS = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "top_k 50": {"top_k": 50},
    "top_p .9": {"top_p": 0.9},
    "top_k 50, top_p .9": {"top_k": 50, "top_p": 0.9},
    "min_p .05": {"min_p": 0.05},
}
WISHES = {
    "penalties": SamplingParams(repetition_penalty=1.2, frequency_penalty=0.1),
    "100 biases": SamplingParams(logit_bias={100 + i: 1.0 for i in range(100)}),
    "64 bad words": SamplingParams(bad_words_ids=tuple((i, i + 1) for i in range(64))),
    "allowed ids": SamplingParams(allowed_token_ids=tuple(range(1000))),
}


def microseconds(call: Callable[[], object], rounds: int = 30) -> float:
    """Median time on the device of one call, after two to warm up."""
    times = []
    for index in range(rounds + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The host runs ahead meanwhile: launches are not what is measured.
        torch.cuda._sleep(3_000_000)  # noqa: SLF001 - torch has no public one
        start.record()
        call()
        end.record()
        end.synchronize()
        if index >= 2:
            times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def draw_call(logits: torch.Tensor, filters: dict[str, float], rows: int) -> Callable[[], object]:
    """A draw of every row with one set of filters."""
    logits = logits[:rows]

    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype, device="cuda")

    arguments = (
        column(filters.get("temperature", 1.0), torch.float32),
        column(filters.get("top_k", 0), torch.int32),
        column(filters.get("top_p", 1.0), torch.float32),
        column(filters.get("min_p", 0.0), torch.float32),
        column(7, torch.int64),
        torch.arange(rows, device="cuda"),
    )
    return lambda: ops.sample(logits, *arguments)


def wish_call(logits: torch.Tensor, sampling: SamplingParams, rows: int) -> Callable[[], object]:
    """What one wish of every row does to the logits, and the note of the drawn tokens."""
    logits = logits[:rows]
    state = LogitsState(rows, logits.shape[1], torch.device("cuda"))
    past = (tuple(range(200, 700)), tuple(range(300, 500)))
    state.start([SlotInit(i, i, sampling, 0, ((),), (), 500, past) for i in range(rows)])
    slots = torch.arange(rows, device="cuda")
    positions = slots + 700
    wanted = np.full(rows, lasting(sampling), dtype=np.int32)

    def call() -> None:
        _, bits = state.adjust(logits, slots, positions, wanted)
        if lasting(sampling) & (logit_flags.PENALTIES | logit_flags.BAD_WORDS):
            state.remember(slots, slots, positions, bits)

    return call


def score_call(logits: torch.Tensor, count: int, rows: int) -> Callable[[], object]:
    """Log-probabilities of one token a row and of the `count` most likely ones."""
    tokens = torch.arange(rows, device="cuda")
    return lambda: score(logits[:rows], tokens, count)


def main() -> None:
    """Print one table, a column for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 64, 256])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/sampling.py needs a CUDA device.")
    generator = torch.Generator("cuda").manual_seed(0)
    sizes = options.rows
    print(f"# {torch.cuda.get_device_name()}, vocabulary {options.vocab}, microseconds")
    print("| what | " + " | ".join(f"{rows} rows" for rows in sizes) + " |")
    print("|---|" + "---|" * len(sizes))
    shape = (max(sizes), options.vocab)
    logits = (torch.randn(shape, device="cuda", generator=generator) * 2.5).bfloat16()
    calls: dict[str, Callable[[int], Callable[[], object]]] = {
        **{name: partial(draw_call, logits, some) for name, some in FILTERS.items()},
        **{name: partial(wish_call, logits, wish) for name, wish in WISHES.items()},
        **{f"{count} logprobs": partial(score_call, logits, count) for count in (0, 5, 20)},
    }
    for name, make in calls.items():
        times = [microseconds(make(rows)) for rows in sizes]
        print(f"| {name} | " + " | ".join(f"{time:.0f}" for time in times) + " |", flush=True)


if __name__ == "__main__":
    main()
