"""Projections of a few rows on one GPU: `python bench/linear.py [--sweep] [--rows 1 4 16]`.

Every time is the mean of a replayed CUDA graph that runs the projection over distinct weights, more
than 256 MiB of them, so that the L2 cache serves none. Beside our kernels stands the library doing
the same: its matrix product, and where the projection has a norm before it or a gate behind it, our
separate kernels for those. Shares are of this card's own read bandwidth, measured first. `--sweep`
times every candidate's tiles and prints the best beside the chosen ones.
"""

# ruff: noqa: B023 - closures timed where they are made

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.nn import functional

import kernels as common
import yaie_kernels as ops
from yaie_kernels.triton.projection import gemv, skinny

WEIGHTS_BYTES = 256 << 20
WORKERS = 12


class Projection(NamedTuple):
    """A layer's matrix: outputs (of each half, where gated), inputs, what stands around it."""

    name: str
    n: int
    k: int
    gate: ops.Gate | None = None
    norm: bool = False


def layer(  # noqa: PLR0917 - a line of a table
    name: str, hidden: int, inner: int, q: int, kv: int, vocab: int
) -> list[Projection]:
    """The projections of a model, its head last."""
    return [
        Projection(f"{name} qkv", q + 2 * kv, hidden, norm=True),
        Projection(f"{name} o", hidden, q),
        Projection(f"{name} gate_up", inner, hidden, "silu", norm=True),
        Projection(f"{name} down", hidden, inner),
        Projection(f"{name} head", vocab, hidden),
    ]


PROJECTIONS = [
    *layer("qwen3-0.6b", 1024, 3072, 2048, 1024, 151_936),
    *layer("llama-8b", 4096, 14_336, 4096, 1024, 128_256),
    *layer("llama-1b", 2048, 8192, 2048, 512, 128_256),
    *layer("qwen3-4b", 2560, 9728, 4096, 1024, 151_936),
    *layer("llama-70b", 8192, 28_672, 8192, 1024, 128_256),
]
MODELS = ("qwen3-0.6b", "llama-8b", "llama-1b", "qwen3-4b", "llama-70b")


class Case:
    """Weights in rotation, inputs, and the calls to time."""

    def __init__(self, projection: Projection, rows: int, *, copies: int | None = None) -> None:
        self.projection, self.rows = projection, rows
        n, k = projection.n * (2 if projection.gate else 1), projection.k
        copies = copies or max(2, -(-WEIGHTS_BYTES // (2 * n * k)))
        self.weights = [self._normal(n, k) for _ in range(copies)]
        self.x, self.residual = self._normal(rows, k), self._normal(rows, k)
        self.norm = torch.ones(k, dtype=torch.bfloat16, device="cuda")
        self.nbytes = 2 * n * k

    @staticmethod
    def _normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16, device="cuda")

    def ours(self, weight: torch.Tensor) -> object:
        """As a model calls it."""
        gate = self.projection.gate
        if not self.projection.norm:
            return ops.linear(self.x, weight, gate=gate)
        return ops.norm_linear(self.x, self.residual, self.norm, 1e-6, 0.0, weight, gate=gate)

    def library(self, weight: torch.Tensor) -> object:
        """The same from the library's product and our separate kernels."""
        x = self.x
        if self.projection.norm:
            x, _ = ops.add_rms_norm(x, self.residual, self.norm, 1e-6)
        y = functional.linear(x, weight)
        return ops.silu_mul(y) if self.projection.gate else y

    def tiled(self, weight: torch.Tensor, tiles: gemv.Tiles | skinny.Tiles) -> object:
        """Ours with these tiles."""
        projection, norm, residual = self.projection, None, None
        if isinstance(tiles, gemv.Tiles):
            if projection.norm:
                norm, residual = gemv.Norm(self.norm, 1e-6, 0.0), self.residual
            return gemv.gemv(
                self.x, weight, None, gate=projection.gate, norm=norm, residual=residual,
                tiles=tiles,
            )  # fmt: skip
        x = self.x
        if projection.norm:
            x, _ = ops.add_rms_norm(x, self.residual, self.norm, 1e-6)
        return skinny.skinny(x, weight, None, gate=projection.gate, tiles=tiles)

    def microseconds(self, call: Callable[[torch.Tensor], object]) -> float:
        """Mean time of one call."""
        calls = [lambda weight=weight: call(weight) for weight in self.weights]
        return common.seconds(calls, rounds=5) * 1e6


def candidates(
    projection: Projection, rows: int, *, wide: bool
) -> Iterator[gemv.Tiles | skinny.Tiles]:
    """Tiles that are worth a try. `wide`: more of them."""
    halves = 2 if projection.gate else 1
    if rows <= 4:
        for warps in (1, 2, 4, 8):
            for block_n in (1, 2, 4, 8):
                tiles = gemv.Tiles(block_n, warps * 256, warps)
                registers = gemv.registers(tiles, projection.k) * halves
                if 8 <= registers <= 80 and projection.n >= 120 * block_n:
                    yield tiles
    if rows > 1:
        for block_n in (8, 16, 32, 64):
            for block_k, warps, stages in SKINNY if wide else SKINNY[:3]:
                if projection.n >= 100 * block_n and block_n * block_k * stages * halves <= 70_000:
                    yield skinny.Tiles(block_n, block_k, warps, stages)


SKINNY = [(256, 2, 4), (256, 1, 4), (128, 4, 4), (512, 1, 3), (256, 4, 3), (128, 2, 6)]


def selected(models: list[str]) -> list[Projection]:
    """The projections of these models."""
    return [one for one in PROJECTIONS if one.name.split()[0] in models]


def compile_share(options: argparse.Namespace) -> None:
    """Call one in WORKERS of all variants once: what they compile is found by the others."""
    number = 0
    for projection in selected(options.model):
        for rows in options.rows:
            mine = []
            for tiles in candidates(projection, rows, wide=options.wide):
                if number % WORKERS == options.compile:
                    mine.append(tiles)
                number += 1
            if mine:
                case = Case(projection, rows, copies=1)
                for tiles in mine:
                    case.tiled(case.weights[0], tiles)


def main() -> None:
    """Print a line for each projection and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--model", nargs="+", default=list(MODELS[:2]), choices=MODELS)
    parser.add_argument("--sweep", action="store_true", help="time every candidate")
    parser.add_argument("--wide", action="store_true", help="more candidates")
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/linear.py needs a CUDA device.")
    if options.compile is not None:
        compile_share(options)
        return
    if options.sweep:
        command = [sys.executable, *sys.argv]
        workers = [
            subprocess.Popen([*command, "--compile", str(i)], stderr=subprocess.DEVNULL)
            for i in range(WORKERS)
        ]
        for worker in workers:
            worker.wait()
    common.measure_ceilings()
    for projection in selected(options.model):
        for rows in options.rows:
            print(line(Case(projection, rows), options), flush=True)
            torch.cuda.empty_cache()


def line(case: Case, options: argparse.Namespace) -> str:
    """Measure one case."""
    projection, rows = case.projection, case.rows
    ours, library = case.microseconds(case.ours), case.microseconds(case.library)
    rate = case.nbytes / ours / 1e6
    text = (
        f"{projection.name} {projection.n}x{projection.k} rows {rows}: {ours:.2f} us "
        f"{rate:.2f} TB/s {rate / common.ceiling['read_tb_s']:.0%}; library {library:.2f} us, "
        f"x{library / ours:.2f}"
    )
    if options.sweep:
        timed = []
        for tiles in candidates(projection, rows, wide=options.wide):
            try:
                timed.append((case.microseconds(lambda w: case.tiled(w, tiles)), tuple(tiles)))
            except Exception as error:  # noqa: BLE001 - tiles that do not fit say so in many ways
                timed.append((float("inf"), (type(error).__name__,)))
        best = ", ".join(f"{tiles} {time:.2f}" for time, tiles in sorted(timed)[:4])
        text += f"\n    best: {best}"
    return text


if __name__ == "__main__":
    main()
