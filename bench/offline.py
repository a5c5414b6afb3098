"""Offline speed on a GPU: `python bench/offline.py [--model NAME] [--cell NAME] [--wish NAME]`.

Runs the workloads through `LLM` with random weights, checks every output's length, and prints one
table beside the peer's figures (vLLM 0.22.1 on an H200) and the memory bandwidth of the same run.
Each cell runs once to warm up, on other ids of the same shape, and then once on the clock. A wish
adds sampling parameters; most of them leave the captured path.
"""

import argparse
import gc
import json
import platform
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
import workloads

from yaie import LLM, SamplingParams

# vLLM 0.22.1 on one H200 and our goal, in the unit of each cell.
PEER = {
    ("qwen3-0.6b", "decode1"): (1.63, 0.80),
    ("qwen3-0.6b", "decode64"): (1.13, 1.0),
    ("qwen3-0.6b", "nano"): (23_673, 30_000),
    ("qwen3-0.6b", "prefill"): (380_000, 400_000),
    ("qwen3-0.6b", "prefix"): (2.04, 1.6),
    ("llama-8b", "decode1"): (4.89, 4.0),
    ("llama-8b", "decode64"): (3.47, 3.3),
    ("llama-8b", "nano"): (9_912, 10_900),
    ("llama-8b", "prefill"): (42_200, 44_000),
    ("llama-8b", "prefix"): (4.05, 3.8),
}
UNITS = {
    "decode1": "ms/token",
    "decode64": "s",
    "nano": "out tok/s",
    "prefill": "in tok/s",
    "prefix": "s",
}
MAX_MODEL_LEN = 8192
WISHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "filters": {"temperature": 1.0, "top_k": 50, "top_p": 0.9},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.2},
    "biases": {"logit_bias": {7: 1.0, 8: -100.0}},
    "logprobs": {"logprobs": 5},
}


def read_bandwidth_tb_s() -> float:
    """Measure the best of ten sums over 4 GiB, in TB/s."""
    data = torch.ones(2**30, dtype=torch.float32, device="cuda")
    best_s = float("inf")
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        data.sum()
        end.record()
        end.synchronize()
        best_s = min(best_s, start.elapsed_time(end) / 1e3)
    return data.nbytes / best_s / 1e12


def run(llm: LLM, cell: str, wish: str, *, shift: int = 0) -> tuple[float, int, int]:
    """Run a workload; returns (seconds, prompt tokens, output tokens)."""
    prompts, lengths = workloads.workload(cell)
    prompts = [[token + shift for token in prompt] for prompt in prompts]
    common = {"temperature": 1.0 if cell == "nano" else 0.0, "ignore_eos": True} | WISHES[wish]
    params = [SamplingParams(max_tokens=length, **common) for length in lengths]
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - started_s
    got = [len(output.outputs[0].token_ids) for output in outputs]
    if got != lengths:
        raise SystemExit(f"{cell}: wrong token counts: {got[:8]} … instead of {lengths[:8]} …")
    return seconds, sum(map(len, prompts)), sum(lengths)


def figure(cell: str, seconds: float, n_in: int, n_out: int) -> float:
    """Express a run in the cell's unit."""
    if cell == "decode1":
        return seconds / n_out * 1e3
    if cell == "nano":
        return n_out / seconds
    return n_in / seconds if cell == "prefill" else seconds


def bench_model(
    name: str, cells: list[str], wishes: list[str], root: Path
) -> list[dict[str, object]]:
    """Load a model shape and run the cells."""
    started_s = time.perf_counter()
    llm = LLM(
        str(workloads.write_model_dir(name, root)),
        load_format="dummy",
        max_model_len=MAX_MODEL_LEN,
        seed=0,
    )
    llm.generate([[1, 2, 3]], SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    start_s = time.perf_counter() - started_s
    print(f"# {name}: first token after {start_s:.1f} s; {llm.info.kv_pages} KV pages", flush=True)
    rows: list[dict[str, object]] = []
    for cell, wish in product(cells, wishes):
        llm.reset_prefix_cache()  # the same prompts come again with every wish
        warm_s, _, _ = run(llm, cell, wish, shift=1)
        seconds, n_in, n_out = run(llm, cell, wish)
        value = figure(cell, seconds, n_in, n_out)
        rows.append(
            {
                "model": name,
                "cell": cell,
                "wish": wish,
                "value": value,
                "unit": UNITS[cell],
                "tokens_in": n_in,
                "tokens_out": n_out,
                "seconds": seconds,
                "warm_up_seconds": warm_s,
            }
        )
        print(row_text(rows[-1]), flush=True)
    del llm
    gc.collect()
    torch.cuda.empty_cache()
    return rows


def row_text(row: dict[str, object]) -> str:
    """One line of the table; the ratio is above 1 where we are better than the peer."""
    peer, goal = PEER[str(row["model"]), str(row["cell"])]
    value = float(str(row["value"]))
    higher = "tok/s" in str(row["unit"])
    ratio = value / peer if higher else peer / value
    return (
        f"| {row['model']} | {row['cell']} | {row['wish']} "
        f"| {value:,.2f} {row['unit']} | {peer:,} | "
        f"{ratio:.2f} | {goal:,} |"
    )


def main() -> None:
    """Run and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=list(workloads.MODELS))
    parser.add_argument("--cell", action="append", choices=list(workloads.NAMES))
    parser.add_argument("--wish", action="append", choices=list(WISHES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/offline.py needs a CUDA device.")
    bandwidth = read_bandwidth_tb_s()
    torch.cuda.empty_cache()
    about = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {platform.python_version()}"
    )
    print(f"# {about}; read bandwidth {bandwidth:.2f} TB/s")
    print(
        "| model | cell | wish | yaie | vLLM | ratio | goal |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as root:
        for name in options.model or list(workloads.MODELS):
            cells, wishes = options.cell or list(workloads.NAMES), options.wish or ["plain"]
            rows += bench_model(name, cells, wishes, Path(root))
    if options.json:
        options.json.write_text(
            json.dumps({"about": about, "read_tb_s": bandwidth, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
