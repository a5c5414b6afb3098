"""Correctness and speed of the kernels on one GPU: `python bench/kernels.py [--tests] [--sweep]`.

Every time is the median over replays of a CUDA graph that holds the calls back to back, over
distinct buffers larger together than the L2 cache. Shares are of this card's own read bandwidth
and matrix rate, measured first.
"""

# ruff: noqa: ANN001, ANN003, ANN201, ANN202, B008, B023 - closures timed where they are made

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import yaie_kernels as kernels
from yaie_kernels.triton.attention.decode import choose, decode
from yaie_kernels.triton.attention.extend import extend
from yaie_kernels.triton.attention.layout import layout

ROOT = Path(__file__).resolve().parents[1]
PAGE = 16
MULTIPROCESSORS = 132
RESULTS: list[dict[str, object]] = []
ceiling = {"read_tb_s": 0.0, "tflop_s": 0.0}


def seconds(calls: Sequence[Callable[[], object]], rounds: int = 7) -> float:
    """Median time of one call: a graph of all of them, replayed."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / len(calls))
    return sorted(times)[rounds // 2]


def report(what: str, time_s: float, *, read_bytes: float = 0, flops: float = 0) -> None:
    row: dict[str, object] = {"what": what, "us": round(time_s * 1e6, 2)}
    if read_bytes:
        rate = read_bytes / time_s / 1e12
        row |= {"tb_s": round(rate, 3), "share": round(rate / ceiling["read_tb_s"], 3)}
    if flops:
        rate = flops / time_s / 1e12
        row |= {"tflop_s": round(rate, 1), "share": round(rate / ceiling["tflop_s"], 3)}
    RESULTS.append(row)
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def measure_ceilings() -> None:
    big = torch.randn(2**30, device="cuda", dtype=torch.bfloat16)
    words = big.view(torch.int64)
    time_s = seconds([lambda: torch.amax(words)] * 3)
    copy_s = seconds([lambda out=torch.empty_like(big): out.copy_(big)] * 3)
    ceiling["read_tb_s"] = max(big.nbytes / time_s, 2 * big.nbytes / copy_s) / 1e12
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ceiling["tflop_s"] = 2 * 8192**3 / seconds([lambda: a @ b] * 4) / 1e12
    print("ceilings", ceiling, torch.__version__, triton.__version__, flush=True)


def decode_calls(lengths, q_heads, kv_heads, head_dim, **change):
    """Calls over disjoint page sets, so that none finds its keys in the cache; bytes of one."""
    pages = -(-max(lengths) // PAGE)
    bytes_each = 2 * sum(lengths) * kv_heads * head_dim * 2
    copies = max(2, min(64, -(-(2**29) // bytes_each)))
    shape = (copies * len(lengths) * pages, PAGE, kv_heads, head_dim)
    k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    order = torch.randperm(shape[0], device="cuda").int().view(copies, len(lengths), pages)
    lens = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    starts = torch.arange(len(lengths) + 1, device="cuda", dtype=torch.int32)
    q = torch.randn(len(lengths), q_heads, head_dim, device="cuda", dtype=torch.bfloat16)
    heads, reach = (kv_heads, q_heads // kv_heads), max(lengths)
    choice = choose(len(lengths), heads, reach, layout(k, v), q.dtype, q.device)._replace(**change)

    def call(tables):
        return decode(
            q, k, v, tables, lens, starts,
            scale=0.1, max_seq_len=reach, window=None, softcap=None, choice=choice,
        )  # fmt: skip

    return [lambda tables=tables: call(tables) for tables in order], bytes_each


def mixed(batch):
    """Lengths of 100..2048 tokens, as in a running server."""
    return torch.randint(100, 2049, (batch,), generator=torch.Generator().manual_seed(0)).tolist()


DECODE = [
    *((f"B{b} ctx{n}", [n] * b, 16, 8, 128) for b in (1, 64, 256) for n in (512, 2048)),
    *((f"B{b} ctx100-2048", mixed(b), 16, 8, 128) for b in (64, 256, 512)),
    ("B256 ctx100-2048", mixed(256), 32, 8, 128),
    ("B3 ctx18000", [18000] * 3, 16, 8, 128),
    ("B3 ctx18000", [18000] * 3, 32, 8, 128),
    ("B256 ctx100-2048", mixed(256), 32, 8, 64),
    ("B256 ctx100-2048", mixed(256), 8, 4, 256),
]


def bench_decode(*, sweep: bool) -> None:
    tiles = (None, (32, 4, 4), (64, 4, 2), (64, 4, 3), (128, 4, 2))
    for name, *shape in DECODE:
        label = f"decode {name} Hq{shape[1]} D{shape[3]}"
        for tile, each in itertools.product(tiles, (0, 2, 3, 4)) if sweep else ((None, None),):
            change = {} if each is None else {"programs": MULTIPROCESSORS * each // shape[2]}
            if tile is not None:
                change["tiles"] = tile
            try:
                calls, size = decode_calls(*shape, **change)
                what = f"  {label} {tile} x{each}" if sweep else label
                report(what, seconds(calls), read_bytes=size)
            except triton.runtime.errors.OutOfResources as error:
                print("  skipped", tile, error)


EXTEND = [
    *((16, 8, 128, *rest) for rest in ((1, 0, 2048), (8, 0, 2048), (1, 0, 8192), (1, 0, 24576))),
    (16, 8, 128, 4, 4096, 512),
    (32, 8, 128, 1, 0, 8192),
    *((32, 8, 64, *rest) for rest in ((8, 0, 2048), (1, 0, 8192), (1, 0, 24576))),
    *((8, 4, 256, *rest) for rest in ((8, 0, 2048), (1, 0, 8192), (1, 0, 24576))),
]


def library_seconds(heads, batch, length):
    """Of torch's fastest attention over dense keys and values."""
    q_heads, kv_heads, head_dim = heads
    q, k, v = (
        torch.randn(batch, count, length, head_dim, device="cuda", dtype=torch.bfloat16)
        for count in (q_heads, kv_heads, kv_heads)
    )
    times = []
    for library in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(library):
            times.append(seconds([lambda: scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True)] * 3))  # fmt: skip
    return min(times)


def bench_extend(*, sweep: bool) -> None:
    for q_heads, kv_heads, head_dim, batch, prefix, chunk in EXTEND:
        length = prefix + chunk
        pages = length // PAGE
        shape = (batch * pages, PAGE, kv_heads, head_dim)
        k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        tables = torch.randperm(shape[0], device="cuda").int().view(batch, pages)
        lens = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        starts = (torch.arange(batch + 1, device="cuda") * chunk).int()
        q = torch.randn(batch * chunk, q_heads, head_dim, device="cuda", dtype=torch.bfloat16)
        flops = 4 * q_heads * head_dim * batch * (chunk * prefix + chunk * (chunk + 1) / 2)
        name = f"extend Hq{q_heads} D{head_dim} B{batch} prefix{prefix} chunk{chunk}"
        options = [None]
        if sweep:
            options += [(128, 128, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (128, 64, 8, 2),
                        (64, 32, 8, 2)]  # fmt: skip
        for tiles in options:
            try:
                time_s = seconds([lambda tiles=tiles: extend(
                    q, k, v, tables, lens, starts,
                    scale=0.1, window=None, softcap=None, tiles=tiles,
                )] * 3)  # fmt: skip
                report(f"{name} {tiles or ''}", time_s, flops=flops)
            except triton.runtime.errors.OutOfResources as error:
                print("  skipped", tiles, error)
        if prefix == 0:
            time_s = library_seconds((q_heads, kv_heads, head_dim), batch, length)
            report(f"{name} torch SDPA, not paged", time_s, flops=flops)


def bench_rows() -> None:
    for tokens in (1, 256, 16384):
        copies = 16 if tokens < 16384 else 2
        for hidden in (1024, 4096):
            x = torch.randn(copies, tokens, hidden, device="cuda", dtype=torch.bfloat16)
            residual, weight = torch.randn_like(x), torch.randn_like(x[0, 0])
            size = tokens * hidden * 2
            calls = [lambda i=i: kernels.rms_norm(x[i], weight, 1e-6) for i in range(copies)]
            report(f"rms_norm T{tokens} H{hidden}", seconds(calls), read_bytes=2 * size)
            calls = [lambda i=i: kernels.add_rms_norm(x[i], residual[i], weight, 1e-6)
                     for i in range(copies)]  # fmt: skip
            report(f"add_rms_norm T{tokens} H{hidden}", seconds(calls), read_bytes=4 * size)
            wide = torch.randn(copies, tokens, 6 * hidden, device="cuda", dtype=torch.bfloat16)
            calls = [lambda i=i: kernels.silu_mul(wide[i]) for i in range(copies)]
            report(f"silu_mul T{tokens} I{3 * hidden}", seconds(calls), read_bytes=9 * size)
        bench_between(tokens, copies)


def bench_between(tokens: int, copies: int) -> None:
    """Norm, rope and cache write of Hq16/Hk8/D128, apart and in one launch."""
    fused = torch.randn(copies, tokens, 32, 128, device="cuda", dtype=torch.bfloat16)
    caches = [torch.empty(tokens // PAGE + 1, PAGE, 8, 128, device="cuda", dtype=torch.bfloat16)
              for _ in range(2)]  # fmt: skip
    slots = torch.randperm(tokens, device="cuda")
    table = torch.randn(4096, 128, device="cuda")
    positions = torch.randint(0, 4096, (tokens,), device="cuda")
    weight = torch.randn(128, device="cuda", dtype=torch.bfloat16)

    def apart(i):
        q, k, v = fused[i].split([16, 8, 8], dim=1)
        q, k = kernels.rms_norm(q, weight, 1e-6), kernels.rms_norm(k, weight, 1e-6)
        kernels.rope_(q, k, positions, table)
        kernels.write_kv(k, v, *caches, slots)

    def together(i):
        q, k, v = fused[i].split([16, 8, 8], dim=1)
        kernels.qk_norm_rope_write(q, k, v, weight, weight, 1e-6, positions, table, *caches, slots)

    size = 2 * tokens * 32 * 128 * 2
    for name, run in (("apart", apart), ("fused", together)):
        calls = [lambda i=i, run=run: run(i) for i in range(copies)]
        report(f"qk_norm+rope+write {name} T{tokens}", seconds(calls), read_bytes=size)


def bench_sample() -> None:
    vocab = 151936
    for batch in (1, 64, 256):
        logits = torch.randn(batch, vocab, device="cuda", dtype=torch.bfloat16) * 3
        full = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
        base = {key: torch.full((batch,), value, device="cuda") for key, value in full.items()}
        base["top_k"] = torch.zeros(batch, device="cuda", dtype=torch.int32)
        base["seed"] = base["position"] = torch.arange(batch, device="cuda")
        for name, change in (
            ("greedy", {"temperature": 0.0}), ("temperature", {}), ("min_p", {"min_p": 0.1}),
            ("top_k 50", {"top_k": 50}), ("top_p 0.9", {"top_p": 0.9}),
            ("top_k 50, top_p 0.9", {"top_k": 50, "top_p": 0.9}),
        ):  # fmt: skip
            rows = dict(base)
            for key, value in change.items():
                rows[key] = torch.full_like(base[key], value)
            time_s = seconds([lambda rows=rows: kernels.sample(logits, **rows)] * 3)
            report(f"sample B{batch} {name}", time_s)


def run_tests() -> None:
    """The kernel tests alone: no configuration or plug-in of the other parts is needed."""
    folder = ROOT / "tests/kernels"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder)]
    command += ["--confcutdir", str(folder), "--import-mode=importlib", "-p", "no:cacheprovider"]
    command += ["-q", "-n", "8", "--maxfail=20", "--tb=short", str(folder / "triton_kernels")]
    print("tests exit", subprocess.run(command, check=False, cwd=ROOT).returncode, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true", help="first run the kernel tests")
    parser.add_argument("--sweep", action="store_true", help="also time other tile sizes")
    parser.add_argument("--only", default="decode,extend,rows,sample")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    if options.tests:
        run_tests()
    measure_ceilings()
    parts = {
        "decode": lambda: bench_decode(sweep=options.sweep),
        "extend": lambda: bench_extend(sweep=options.sweep),
        "rows": bench_rows,
        "sample": bench_sample,
    }
    for name in options.only.split(","):
        parts[name]()
        torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps({"ceiling": ceiling, "rows": RESULTS}, indent=1))


if __name__ == "__main__":
    main()
