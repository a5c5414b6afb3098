"""Figures of other engines on the same work, and what we ask of ourselves.

They were measured with the programs of this folder, so a figure stands beside ours wherever the
machine is of the same kind. Ratios between runs on two cards of one kind mean little below 5 %.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Where figures come from."""

    name: str
    versions: str
    machine: str
    conditions: str
    recorded: str


VLLM = Source(
    name="vLLM 0.22.1",
    versions="torch 2.11.0+cu130, FlashAttention 3, CUDA graphs, torch.compile",
    machine="one NVIDIA H200; memory read 4.24 TB/s, bf16 matmul 797 TFLOP/s",
    conditions=(
        "bf16, random weights, token ids, EOS ignored; online: one server a shape, "
        "`run URL NAME --rates … --seconds 15`, rates ascending in one run"
    ),
    recorded="2026-11-22",
)


@dataclass(frozen=True)
class Offline:
    """A cell's figures in its unit.

    Attributes:
        peer: what VLLM needs or gives; None where it was not measured.
        goal: what we want.
        limit: the bytes or FLOPs that must move, over the card's measured ceiling; None: unknown.

    """

    peer: float | None = None
    goal: float | None = None
    limit: float | None = None


UNITS = {
    "decode1": "ms/token",
    "decode64": "s",
    "nano": "out tok/s",
    "prefill": "in tok/s",
    "prefix": "s",
    "short": "out tok/s",
    "long": "s",
}
OFFLINE = {
    ("qwen3-0.6b", "decode1"): Offline(peer=1.63, goal=0.80, limit=0.28),
    ("qwen3-0.6b", "decode64"): Offline(peer=1.13, goal=1.0),
    ("qwen3-0.6b", "nano"): Offline(peer=23_673, goal=30_000, limit=36_300),
    ("qwen3-0.6b", "prefill"): Offline(peer=380_000, goal=400_000),
    ("qwen3-0.6b", "prefix"): Offline(peer=2.04, goal=1.6),
    ("llama-8b", "decode1"): Offline(peer=4.89, goal=4.0, limit=3.54),
    ("llama-8b", "decode64"): Offline(peer=3.47, goal=3.3),
    ("llama-8b", "nano"): Offline(peer=9_912, goal=10_900, limit=13_300),
    ("llama-8b", "prefill"): Offline(peer=42_200, goal=44_000, limit=53_000),
    ("llama-8b", "prefix"): Offline(peer=4.05, goal=3.8),
}
FIRST_RUN_GOAL = 1.10  # a cell's first run over its second: nothing may compile or capture late


@dataclass(frozen=True)
class Online:
    """A rate's figures: latencies in milliseconds, output in tokens/s. Ours have to be as good.

    `ttft_8k` is the median of the 8,000-token prompts.
    """

    ttft_p50: float | None
    ttft_p99: float | None
    ttft_8k: float | None
    gap_p50: float | None
    gap_p99: float | None
    gap_p999: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    out_tok_s: float


ONLINE = {  # (shape, requests/s)
    ("qwen3-0.6b", 20): Online(20.5, 71, 52, 1.9, 13.8, 24.0, 2.26, 3.31, 4_316),
    ("qwen3-0.6b", 60): Online(29.0, 79, 90, 2.7, 16.3, 28.6, 3.65, 5.31, 11_476),
    ("qwen3-0.6b", 100): Online(53.8, 515, 100, 6.9, 21.3, 38.1, 4.74, 13.7, 18_404),
    ("llama-8b", 10): Online(29.1, 240, 227, 5.6, 17.5, 44.2, 6.17, 8.06, 2_271),
    ("llama-8b", 20): Online(24.0, 203, 222, 5.9, 16.8, 31.5, 6.53, 9.05, 4_083),
    ("llama-8b", 30): Online(26.0, 198, 241, 6.2, 21.0, 201, 6.65, 9.17, 5_632),
}
