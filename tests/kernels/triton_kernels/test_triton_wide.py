"""Projections of some dozens of rows: tiles of every kind, shared columns, padding."""

import itertools

import pytest
import torch
from torch.nn import functional

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge
from yaie_kernels.triton.projection import wide
from yaie_kernels.triton.projection.wide import Tiles

PLAIN = [Tiles(32, 256, 1, 3), Tiles(64, 64, 1, 5)]
SHARED = [Tiles(16, 128, 4, 4), Tiles(32, 256, 2, 3), Tiles(64, 128, 4, 4)]
BOXES = [Tiles(64, 128, 1, 4, boxes=True), Tiles(64, 128, 2, 4, boxes=True)]
OUTPUTS = [1024, 2048, 2560, 3072, 4096, 6144, 14_336, 151_936]
INPUTS = [1024, 2048, 3072, 4096, 14_336]


def normal(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    values = (torch.randn(shape) / shape[-1] ** 0.5).to(dtype).to(device)
    if device == "cuda":
        torch.cuda.synchronize()  # weights are constants: they may be read ahead
    return values


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def half(request: pytest.FixtureRequest, device: str) -> torch.dtype:
    dtype: torch.dtype = request.param
    if dtype == torch.bfloat16 and device == "cpu":
        pytest.skip("the interpreter has no bfloat16 products")
    return dtype


@pytest.mark.parametrize("tiles", [*PLAIN, *SHARED, *BOXES])
@pytest.mark.parametrize(
    ("rows", "shape"), [(17, (64, 512)), (33, (200, 1288)), (127, (96, 136)), (255, (200, 520))]
)
def test_linear(
    half: torch.dtype, device: str, rows: int, tiles: Tiles, shape: tuple[int, int]
) -> None:
    n, k = shape
    shapes = ((rows, k), (n, k), (n,))
    x, weight, bias = (normal(*size, dtype=half, device=device) for size in shapes)
    for shift in (None, bias):
        got = wide.wide(x, weight, shift, tiles)
        wide_shift = None if shift is None else shift.double()
        exact = functional.linear(x.double(), weight.double(), wide_shift)
        judge("wide", got, functional.linear(x, weight, shift), exact)
        assert torch.equal(wide.wide(x, weight, shift, tiles), got)


@pytest.mark.parametrize("gate", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("tiles", PLAIN)
@pytest.mark.parametrize("shape", [(64, 512), (200, 1288)])  # the second: multiples of no tile
def test_a_gated_linear(
    half: torch.dtype, device: str, gate: str, tiles: Tiles, shape: tuple[int, int]
) -> None:
    n, k = shape
    shapes = ((33, k), (2 * n, k), (2 * n,))
    x, weight, bias = (normal(*size, dtype=half, device=device) for size in shapes)
    got = wide.wide(x, weight, bias, tiles, gate=gate)
    plain = reference.linear(x, weight, bias, gate=gate)
    exact = reference.linear(x.double(), weight.double(), bias.double(), gate=gate)
    judge("gated", got, plain, exact)


@pytest.mark.parametrize("tiles", [*PLAIN, *SHARED, *BOXES])
def test_padding_changes_no_other_row(half: torch.dtype, device: str, tiles: Tiles) -> None:
    x, weight = (normal(rows, 520, dtype=half, device=device) for rows in (48, 200))
    other = torch.cat((x[:20], torch.full_like(x[20:], torch.nan)))
    got = wide.wide(x, weight, None, tiles)
    assert torch.equal(wide.wide(other, weight, None, tiles)[:20], got[:20])
    assert torch.equal(wide.wide(x[:20], weight, None, tiles), got[:20])


@pytest.mark.parametrize("rows", [5, 16, 17, 33, 65, 96, 128])
@pytest.mark.parametrize("gated", [False, True])
def test_chosen_tiles_fit(rows: int, gated: bool) -> None:
    for n, k in itertools.product(OUTPUTS, INPUTS):
        tiles = wide.choose_tiles(rows, n, k, gated=gated)
        if tiles is None:
            continue
        assert (tiles.block_m + 64) * tiles.block_k * 2 * tiles.stages <= 200_000
        if gated:
            assert tiles.split == 1
            assert not tiles.boxes
        assert tiles.split == 1 or -(-n // 64) * -(-rows // tiles.block_m) <= wide._COUNTS


@pytest.mark.parametrize(
    ("rows", "n", "k", "gated"),
    [
        (16, 4096, 1024, False),
        (64, 2048, 2048, False),
        (80, 4096, 1024, False),
        (128, 3072, 1024, True),
        (128, 4096, 14_336, False),
        (24, 128_256, 4096, False),
    ],
)
def test_what_another_does_as_well_stays_with_it(rows: int, n: int, k: int, gated: bool) -> None:
    assert wide.choose_tiles(rows, n, k, gated=gated) is None


@pytest.mark.parametrize("rows", [1, 4, 129, 192])
def test_one_row_and_hundreds_are_for_others(half: torch.dtype, device: str, rows: int) -> None:
    x, weight = (normal(size, 2048, dtype=half, device=device) for size in (rows, 1024))
    assert wide.choose(x, weight, gated=False) is None


@pytest.mark.parametrize("rows", [16, 17, 64, 100])
def test_a_linear_takes_the_chosen_tiles(half: torch.dtype, device: str, rows: int) -> None:
    x, weight = (normal(size, 2048, dtype=half, device=device) for size in (rows, 1024))
    tiles = wide.choose(x, weight, gated=False)
    assert tiles is not None
    assert torch.equal(triton.linear(x, weight), wide.wide(x, weight, None, tiles))
