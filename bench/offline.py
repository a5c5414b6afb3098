"""Offline speed on a GPU: `python bench/offline.py [--model NAME] [--cell NAME] [--wish NAME]`.

Runs the workloads through `LLM` with random weights and checks every output's length. Each cell
runs twice, with other ids of the same shape: the first run includes whatever compiles, captures or
allocates late and may take 10 % longer at most; the second one stands beside the peer's figures,
our goal and the limit (`peers.py`), with the memory bandwidth of the same run above the table. A
wish adds sampling parameters; most of them leave the captured path.

It needs a GPU's packages and the base install, and nothing of the server's: no fastapi, no zmq.
"""

import argparse
import gc
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import peers
import tables
import torch
import workloads
from tables import OfflineRow

from yaie import LLM, SamplingParams

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


def bench_cell(llm: LLM, model: str, cell: str, wish: str) -> OfflineRow:
    """Run a cell twice."""
    llm.reset_prefix_cache()  # the same prompts come again with every wish
    first_s, n_in, n_out = run(llm, cell, wish, shift=1)
    second_s, _, _ = run(llm, cell, wish)
    return OfflineRow(
        model=model,
        cell=cell,
        wish=wish,
        unit=peers.UNITS[cell],
        first=tables.offline_figure(cell, first_s, n_in, n_out),
        second=tables.offline_figure(cell, second_s, n_in, n_out),
        first_s=first_s,
        second_s=second_s,
        tokens_in=n_in,
        tokens_out=n_out,
    )


def bench_model(
    name: str, cells: Sequence[str], wishes: Sequence[str], root: Path, settings: dict[str, Any]
) -> list[OfflineRow]:
    """Load a model shape and run the cells."""
    started_s = time.perf_counter()
    folder = workloads.write_model_dir(name, root / name)
    llm = LLM(folder, load_format="dummy", seed=0, **settings)
    llm.generate([[1, 2, 3]], SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    start_s = time.perf_counter() - started_s
    print(f"# {name}: first token after {start_s:.1f} s; {llm.info.kv_pages} KV pages", flush=True)
    rows = []
    for cell, wish in product(cells, wishes):
        rows.append(bench_cell(llm, name, cell, wish))
        print(tables.offline_row(rows[-1]), flush=True)
    del llm
    gc.collect()
    torch.cuda.empty_cache()
    return rows


def main() -> None:
    """Run and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=list(workloads.MODELS))
    parser.add_argument("--cell", action="append", choices=list(workloads.NAMES))
    parser.add_argument("--wish", action="append", choices=list(WISHES))
    parser.add_argument("--max-model-len", type=int, help="default: the model's own limit")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/offline.py needs a CUDA device.")
    bandwidth = read_bandwidth_tb_s()
    torch.cuda.empty_cache()
    about = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {platform.python_version()}"
    )
    print(f"# {about}; read bandwidth {bandwidth:.2f} TB/s; beside {peers.VLLM.name}")
    print(tables.head(tables.OFFLINE_HEADS), flush=True)
    settings = {"max_model_len": options.max_model_len} if options.max_model_len else {}
    cells, wishes = options.cell or workloads.NAMES, options.wish or ["plain"]
    rows: list[OfflineRow] = []
    with tempfile.TemporaryDirectory() as root:
        for name in options.model or workloads.MODELS:
            rows += bench_model(name, cells, wishes, Path(root), settings)
    if options.json:
        report = {"about": about, "read_tb_s": bandwidth, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
