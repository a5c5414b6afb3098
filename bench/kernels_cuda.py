"""The C++/CUDA kernels beside Triton's, torch's own and the card's ceilings, in one run.

    python -m yaie_kernels.cuda.build && python bench/kernels_cuda.py [--only paged,flash]

Prints a table: microseconds of each, and of a kernel that would only move the bytes (or do the
products) at this card's own read bandwidth (or matrix rate, or bus rate), measured first. Times are
taken as in `kernels.py`.
"""

# ruff: noqa: ANN001, ANN202, B023 - closures timed where they are made

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import PAGE, ceiling, measure_ceilings, seconds
from yaie_kernels import cuda, library, reference, triton
from yaie_kernels.cuda import build
from yaie_kernels.triton.attention.extend import extend

BACKENDS = ("cuda", "triton", "library")
BF16 = torch.bfloat16
bus = {"tb_s": 0.0}


@dataclass
class Row:
    """One operation at one shape; the calls of a backend go over distinct buffers."""

    name: str
    shape: str
    moved: float = 0  # bytes
    over_bus: float = 0  # bytes
    flops: float = 0
    calls: dict[str, Sequence[Callable[[], object]]] = field(default_factory=dict)

    def ceiling_s(self) -> float:
        """What no kernel can beat."""
        rates = ceiling["read_tb_s"], bus["tb_s"], ceiling["tflop_s"]
        parts = zip((self.moved, self.over_bus, self.flops), rates, strict=True)
        return max(amount / (rate * 1e12) for amount, rate in parts)


def random(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=BF16, requires_grad=grad)


def over(copies: int, call: Callable[[int], object]) -> list[Callable[[], object]]:
    return [lambda i=i: call(i) for i in range(copies)]


def elementwise() -> Iterator[Row]:
    """One token, a decode batch and a long prefill of an 8B model."""
    for tokens in (1, 256, 16384):
        copies = 16 if tokens < 16384 else 2
        hidden, heads, inner = 4096, 40, 12288
        x, residual = random(2, copies, tokens, hidden)
        weight, head_weight = random(hidden), random(128)
        qk, wide = random(copies, tokens, heads, 128), random(copies, tokens, 2 * inner)
        table = torch.randn(4096, 128, device="cuda")
        positions = torch.randint(0, 4096, (tokens,), device="cuda")
        line, several = 2 * tokens * hidden, 2 * tokens * heads * 128
        both = {"cuda": cuda, "triton": triton}
        three = both | {"library": library}

        def row(name, shape, moved, backends, call):
            calls = {key: over(copies, lambda i, b=b: call(b, i)) for key, b in backends.items()}
            return Row(name, f"{tokens} x {shape}", moved=moved, calls=calls)

        yield row("rms_norm", hidden, 2 * line, three, lambda b, i: b.rms_norm(x[i], weight, 1e-6))
        yield row("add_rms_norm", hidden, 4 * line, both,
                  lambda b, i: b.add_rms_norm(x[i], residual[i], weight, 1e-6))  # fmt: skip
        yield row("rms_norm", f"{heads} x 128", 2 * several, three,
                  lambda b, i: b.rms_norm(qk[i], head_weight, 1e-6))  # fmt: skip
        yield row("rope", f"{heads} x 128", 2 * several, both | {"library": reference},
                  lambda b, i: b.rope_(qk[i][:, :32], qk[i][:, 32:], positions, table))  # fmt: skip
        yield row("silu_mul", inner, 6 * tokens * inner, three, lambda b, i: b.silu_mul(wide[i]))


def pages() -> Iterator[Row]:
    """Copies of pages within a cache, and to and from pinned memory."""
    cache, host = random(2048, PAGE, 8, 128), random(1024, PAGE, 8, 128).cpu().pin_memory()
    page = cache[0].nbytes
    for count in (4, 512):
        order = torch.randperm(2048, device="cuda")
        source, target = order[:count], order[count : 2 * count]
        backends = {"cuda": cuda, "triton": triton, "library": reference}
        yield Row("copy_pages", f"{count} of {page >> 10} KiB", moved=2 * count * page, calls={
            name: over(4, lambda _, b=b: b.copy_pages(cache, source, target))
            for name, b in backends.items()
        })  # fmt: skip
        there = torch.randperm(1024, device="cuda")[:count]
        shape = f"{count} of {page >> 10} KiB"
        yield Row("swap_pages out", shape, over_bus=count * page, calls={
            "cuda": over(4, lambda _: cuda.swap_pages(cache, host, source, there)),
            "library": over(4, lambda _: host[:count].copy_(cache[source], non_blocking=True)),
        })  # fmt: skip
        yield Row("swap_pages in", shape, over_bus=count * page, calls={
            "cuda": over(4, lambda _: cuda.swap_pages(host, cache, there, target)),
            "library": over(4, lambda _: cache.index_copy_(
                0, target, host[:count].to("cuda", non_blocking=True))),
        })  # fmt: skip


def paged() -> Iterator[Row]:
    """Decode: calls over disjoint page sets, so that none finds its keys in the cache."""
    for batch, context, q_heads, kv_heads, dim in (
        (1, 512, 16, 8, 128), (1, 2048, 32, 8, 128), (1, 8192, 32, 8, 128), (64, 512, 32, 8, 128),
        (64, 2048, 32, 8, 128), (256, 512, 16, 8, 128), (256, 2048, 32, 8, 128),
        (64, 2048, 32, 4, 64), (64, 1024, 16, 2, 256),
    ):  # fmt: skip
        length = -(-context // PAGE)
        size = 2 * batch * context * kv_heads * dim * 2
        copies = max(2, min(64, -(-(2**29) // size)))
        k, v = random(2, copies * batch * length, PAGE, kv_heads, dim)
        order = torch.randperm(k.shape[0], device="cuda").int().view(copies, batch, length)
        lens = torch.full((batch,), context, device="cuda", dtype=torch.int32)
        starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
        q = random(batch, q_heads, dim)
        heads = q.view(batch, q_heads, 1, dim)
        dense = [x.view(copies, batch, kv_heads, context, dim) for x in (k, v)]
        bounds = {"scale": dim**-0.5, "max_query_len": 1, "max_seq_len": context}
        calls = {
            name: over(copies, lambda i, b=b: b.paged_attention(
                q, k, v, order[i], lens, starts, **bounds))
            for name, b in (("cuda", cuda), ("triton", triton))
        }  # fmt: skip
        calls["library"] = over(  # SDPA of dense caches: no tables to look up
            copies,
            lambda i: scaled_dot_product_attention(
                heads, dense[0][i], dense[1][i], enable_gqa=True
            ),
        )
        shape = f"B{batch} x {context}, {q_heads}/{kv_heads} x {dim}"
        yield Row("paged decode", shape, moved=size, calls=calls)


def flash() -> Iterator[Row]:
    """Dense attention forward, and forward with backward."""
    for batch, q_heads, kv_heads, length, dim, causal in (
        (8, 16, 16, 2048, 128, True), (8, 32, 8, 2048, 128, True), (8, 32, 8, 2048, 128, False),
        (1, 32, 8, 8192, 128, True), (8, 32, 32, 2048, 64, True), (4, 16, 16, 2048, 256, True),
    ):  # fmt: skip
        q = random(batch, q_heads, length, dim, grad=True)
        k, v = (random(batch, kv_heads, length, dim, grad=True) for _ in range(2))
        grad = torch.randn_like(q)
        options = {"scale": dim**-0.5, "causal": causal}
        flops = 4 * batch * q_heads * dim * length**2 / (2 if causal else 1)
        shape = f"B{batch} x {length}, {q_heads}/{kv_heads} x {dim}" + ", causal" * causal
        two = {"cuda": cuda, "library": library}

        def forward(backend):
            with torch.no_grad():
                return backend.flash_attention(q, k, v, **options)

        def backward(backend):
            out = backend.flash_attention(q, k, v, **options)
            return torch.autograd.grad(out, (q, k, v), grad)

        calls = {name: over(2, lambda _, b=b: forward(b)) for name, b in two.items()}
        if causal:
            calls["triton"] = over(2, extend_call(q.detach(), k.detach(), v.detach()))
        yield Row("flash forward", shape, flops=flops, calls=calls)
        calls = {name: over(2, lambda _, b=b: backward(b)) for name, b in two.items()}
        yield Row("flash forward + backward", shape, flops=3.5 * flops, calls=calls)


def extend_call(q, k, v) -> Callable[[int], object]:
    """Triton's attention of the same tensors, from a paged cache."""
    batch, q_heads, length, dim = q.shape
    caches = [x.transpose(1, 2).reshape(-1, PAGE, k.shape[1], dim) for x in (k, v)]
    tables = torch.arange(caches[0].shape[0], device="cuda").int().view(batch, -1)
    lens = torch.full((batch,), length, device="cuda", dtype=torch.int32)
    starts = torch.arange(batch + 1, device="cuda").int() * length
    queries = q.transpose(1, 2).reshape(-1, q_heads, dim)
    return lambda _: extend(
        queries, *caches, tables, lens, starts,
        scale=dim**-0.5, max_query_len=length, window=None, softcap=None,
    )  # fmt: skip


def measure_bus() -> None:
    host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    device = host.cuda()
    time_s = seconds([lambda: device.copy_(host, non_blocking=True)] * 2)
    bus["tb_s"] = host.nbytes / time_s / 1e12
    print(f"bus {bus['tb_s'] * 1e3:.1f} GB/s", flush=True)


def show(row: Row) -> None:
    cells = []
    for name in BACKENDS:
        try:
            cells.append(f"{seconds(row.calls[name], 5) * 1e6:.1f}" if name in row.calls else "")
        except (RuntimeError, torch.OutOfMemoryError) as error:
            cells.append(f"failed: {str(error)[:60]}")
    best = f"{row.ceiling_s() * 1e6:.1f}"
    print("| " + " | ".join([row.name, row.shape, *cells, best]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"elementwise": elementwise, "pages": pages, "paged": paged, "flash": flash}
    parser.add_argument("--only", default=",".join(parts))
    options = parser.parse_args()
    if build.load() is None:
        parser.error(build.missing())
    measure_ceilings()
    measure_bus()
    print("| operation | shape | cuda | triton | library | ceiling |\n|" + "---|" * 6)
    for name in options.only.split(","):
        for row in parts[name]():
            show(row)
            row.calls.clear()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
