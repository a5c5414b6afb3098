"""Speed of experts and latent attention on one GPU: `python bench/kernels_moe.py [--sweep]`.

Times and shares as in kernels.py. Bytes are the weights of the experts that have tokens, or the
latents that are read: what a step cannot avoid. The loop beside the grouped product computes one
expert after the other with torch, as a reference implementation does; it reads the choice back to
the host, so it is timed without a graph.
"""

# ruff: noqa: ANN001, ANN003, ANN201, ANN202, B023 - closures timed where they are made

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
import triton
from torch.nn.functional import linear, silu

import kernels as common
import yaie_kernels as kernels
from kernels import MULTIPROCESSORS, PAGE, RESULTS, ceiling, measure_ceilings, report
from yaie_kernels.triton.attention.decode import Choice, choose_splits, decode
from yaie_kernels.triton.attention.extend import extend
from yaie_kernels.triton.moe import Tiles, choose_tiles, moe_mlp

MODELS = {"Mixtral-8x7B": (8, 2, 4096, 14336), "Qwen3-30B-A3B": (128, 8, 2048, 768)}
TOKENS = (1, 16, 256, 4096)
SMALL = [Tiles(16, n, k, w, s) for n, k, w, s in (
    (64, 128, 4, 4), (128, 64, 4, 4), (64, 64, 4, 5), (32, 256, 4, 3), (32, 128, 4, 5),
    (128, 128, 8, 3), (64, 256, 8, 3),
)]  # fmt: skip
MIDDLE = [Tiles(*t) for t in (
    (32, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 128, 64, 4, 3), (64, 128, 64, 8, 3),
    (16, 128, 64, 4, 4), (128, 64, 64, 4, 3),
)]  # fmt: skip
LARGE = [Tiles(*t) for t in (
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 3), (64, 128, 64, 4, 3),
    (128, 256, 64, 8, 3), (128, 128, 32, 8, 4),
)]  # fmt: skip
LATENT_TILES = [(32, 8, 3), (32, 4, 2), (32, 4, 3), (64, 8, 2), (16, 4, 4), (64, 4, 2)]
LATENT_ROWS = {16: (16,), 128: (16, 32, 64)}
EXTEND_LATENT = [(64, 32, 8, 2), (64, 32, 4, 2), (32, 32, 4, 2), (64, 64, 8, 1), (64, 16, 8, 3)]
EXTEND_WIDE = [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (128, 128, 8, 2), (128, 32, 8, 3)]


def seconds(calls, rounds=7):
    """Time of a call; while only compiling, one call and no time."""
    if compiling:
        calls[0]()
        return 1.0
    return common.seconds(calls, rounds)


def candidates(mean: float) -> list[Tiles]:
    if mean <= 16:
        return SMALL
    return MIDDLE if mean <= 64 else LARGE


def weights(name):
    experts, _, hidden, inner = MODELS[name]
    gate_up = torch.randn(experts, 2 * inner, hidden, device="cuda", dtype=torch.bfloat16)
    down = torch.randn(experts, hidden, inner, device="cuda", dtype=torch.bfloat16)
    return gate_up.mul_(hidden**-0.5), down.mul_(inner**-0.5)


def choices(name, tokens, count):
    experts, top_k, _, _ = MODELS[name]
    scores = torch.rand(count, tokens, experts, device="cuda")
    shares = torch.rand(tokens, top_k, device="cuda")
    return scores.topk(top_k, dim=-1).indices, shares


def loop(x, gate_up, down, experts, shares):
    """One expert after the other."""
    out = torch.zeros_like(x)
    for expert in experts.unique().tolist():
        tokens, place = torch.where(experts == expert)
        gate, up = linear(x[tokens], gate_up[expert]).chunk(2, dim=-1)
        part = linear(silu(gate) * up, down[expert]) * shares[tokens, place, None].to(x.dtype)
        out.index_add_(0, tokens, part)
    return out


def eager_seconds(call, rounds=5):
    if compiling:
        return 1.0
    call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[rounds // 2]


def bench_experts(*, sweep: bool) -> None:
    for name, (count, top_k, hidden, inner) in MODELS.items():
        gate_up, down = weights(name)
        for tokens in TOKENS:
            chosen, shares = choices(name, tokens, 8 if tokens < 4096 else 2)
            x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
            pairs = tokens * top_k
            active = sum(len(each.unique()) for each in chosen) / len(chosen)
            size, flops = active * 3 * hidden * inner * 2, pairs * 6 * hidden * inner

            def run(tiles=None, rounds=5):
                return seconds(
                    [lambda c=c: moe_mlp(x, gate_up, down, c, shares, tiles=tiles) for c in chosen],
                    rounds,
                )

            bound = {"flops": flops} if tokens == 4096 else {"read_bytes": size}
            time_s = run()
            report(f"{name} T{tokens}", time_s, **bound)
            slow = eager_seconds(lambda: loop(x, gate_up, down, chosen[0], shares))
            report(f"{name} T{tokens} expert by expert ({slow / time_s:.1f}x)", slow, **bound)
            if sweep:
                base = choose_tiles(pairs, count, x.dtype)
                for other, gated in itertools.product(candidates(pairs / count), (True, False)):
                    tiles = (other, base[1]) if gated else (base[0], other)
                    try:
                        time_s = run(tiles, 3)
                        label = f"  {name} T{tokens} {'gate_up' if gated else 'down'}"
                        report(f"{label} {tuple(other)}", time_s, **bound)
                    except triton.runtime.errors.OutOfResources as error:
                        print("  skipped", other, gated, error)


def bench_routing() -> None:
    for name, count, rule in (
        ("Qwen3-30B-A3B", 128, {"top_k": 8, "normalize": True}),
        ("DeepSeek-V3", 256, {"top_k": 8, "normalize": True, "sigmoid": True, "groups": 8,
                              "kept_groups": 4, "group_best": 2}),
    ):  # fmt: skip
        for tokens in (1, 256, 4096):
            logits = torch.randn(tokens, count, device="cuda", dtype=torch.float32)
            bias = torch.randn(count, device="cuda") if "sigmoid" in rule else None
            time_s = seconds([lambda: kernels.route_experts(logits, bias, **rule)] * 8)
            report(f"route {name} T{tokens}", time_s)


def latent_pages(batch, context):
    pages = -(-context // PAGE)
    copies = max(2, min(64, -(-(2**29) // (batch * context * 576 * 2))))
    cache = torch.randn(copies * batch * pages, PAGE, 1, 576, device="cuda", dtype=torch.bfloat16)
    tables = torch.randperm(len(cache), device="cuda").int().view(copies, batch, pages)
    return cache, tables


def bench_latent_decode(*, sweep: bool) -> None:
    context = 4096
    for heads, batch in itertools.product((16, 128), (1, 64)):
        cache, tables = latent_pages(batch, context)
        lens = torch.full((batch,), context, device="cuda", dtype=torch.int32)
        starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
        q = torch.randn(batch, heads, 576, device="cuda", dtype=torch.bfloat16)

        def run(rounds=5, **choice):
            options = {"scale": 0.07, "max_seq_len": context, "window": None, "softcap": None}
            return seconds(
                [lambda t=t: decode(
                    q, cache, cache[..., :512], t, lens, starts, **options, **choice)
                 for t in tables], rounds,
            )  # fmt: skip

        label = f"latent decode Hq{heads} B{batch} ctx{context}"
        size = batch * context * 576 * 2
        report(label, run(), read_bytes=size)
        if not sweep:
            continue
        for rows, tiles in itertools.product(LATENT_ROWS[heads], LATENT_TILES):
            try:
                filling = MULTIPROCESSORS * (2 if rows < 64 else 1)
                splits, wanted = choose_splits(batch * -(-heads // rows), context, 0, filling)
                time_s = run(3, choice=Choice(rows, tiles, splits=splits, wanted=wanted))
                report(f"  {label} rows{rows} {tiles}", time_s, read_bytes=size)
            except triton.runtime.errors.OutOfResources as error:
                print("  skipped", rows, tiles, error)


def bench_wide_extend(*, sweep: bool) -> None:
    """Prompts of 4096 over latents (16 heads) and over full keys of 192 with values of 128."""
    length = 4096
    pages = length // PAGE
    latent = torch.randn(pages, PAGE, 1, 576, device="cuda", dtype=torch.bfloat16)
    keys = torch.randn(pages, PAGE, 16, 192, device="cuda", dtype=torch.bfloat16)
    values = torch.randn(pages, PAGE, 16, 128, device="cuda", dtype=torch.bfloat16)
    tables = torch.randperm(pages, device="cuda").int().view(1, pages)
    lens = torch.tensor([length], device="cuda", dtype=torch.int32)
    starts = torch.tensor([0, length], device="cuda", dtype=torch.int32)
    for name, k, v, tiles in (
        ("latent 576/512", latent, latent[..., :512], EXTEND_LATENT),
        ("full 192/128", keys, values, EXTEND_WIDE),
    ):
        q = torch.randn(length, 16, k.shape[-1], device="cuda", dtype=torch.bfloat16)
        flops = 2 * 16 * (k.shape[-1] + v.shape[-1]) * length * (length + 1) / 2
        for tile in (None, *(tiles if sweep else ())):
            try:
                time_s = seconds([lambda: extend(
                    q, k, v, tables, lens, starts, scale=0.07,
                    window=None, softcap=None, tiles=tile,
                )] * 3, 3)  # fmt: skip
                report(f"extend {name} Hq16 4096 {tile or ''}", time_s, flops=flops)
            except triton.runtime.errors.OutOfResources as error:
                print("  skipped", tile, error)


compiling = False
PARTS = {
    "experts": bench_experts,
    "latent": bench_latent_decode,
    "extend": bench_wide_extend,
}


def compile_ahead() -> None:
    """Run every part once in processes of their own: kernels compile on all cores, into the cache.

    Each of them takes its share of the tiles.
    """
    shares = 5
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--only", part, "--warm", f"{i}/{shares}"],
            stdout=subprocess.DEVNULL,
        )
        for part in PARTS
        for i in range(shares)
    ]
    for process in started:
        process.wait()


def keep_share(share: str) -> None:
    """Keep every n-th of the tiles, and only compile."""
    global compiling  # noqa: PLW0603 - the mode of this process
    compiling = True
    index, count = map(int, share.split("/"))
    for tiles in (SMALL, MIDDLE, LARGE, LATENT_TILES, EXTEND_LATENT, EXTEND_WIDE):
        tiles[:] = tiles[index::count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true", help="also time other tile sizes")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--warm", help="i/n: only compile this share of the tiles")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    if options.warm:
        keep_share(options.warm)
        ceiling.update(read_tb_s=1.0, tflop_s=1.0)
    else:
        if options.sweep:
            compile_ahead()
        measure_ceilings()
        bench_routing()
    for name in options.only.split(","):
        PARTS[name](sweep=options.sweep or bool(options.warm))
        torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps({"ceiling": ceiling, "rows": RESULTS}, indent=1))


if __name__ == "__main__":
    main()
