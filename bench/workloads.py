"""The workloads that every engine is timed on: token ids in, token ids out, EOS ignored.

A workload is (prompts, output_lens); ids come from a fixed seed, so that every engine sees the same
work. Models are shapes only: every engine loads random bfloat16 weights. `bench/offline.py` gives a
whole workload to `LLM`; `bench/online.py` takes its burst of short chats from here.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
    "llama-8b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 128000,
        "eos_token_id": 128009,
    },
}
Workload = tuple[list[list[int]], list[int]]


def write_model_dir(name: str, path: Path) -> Path:
    """Write config.json of a model shape to the folder `path`; returns it.

    Raises:
        KeyError: no such shape.

    """
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(MODELS[name]))
    return path


def workload(name: str) -> Workload:
    """Return (prompts, output_lens) of a workload.

    Raises:
        KeyError: an unknown name.

    """
    return _CELLS[name](random.Random(0))


def _decode1(rng: random.Random) -> Workload:
    """One user: latency per token."""
    return [_ids(rng, 128)], [512]


def _decode64(rng: random.Random) -> Workload:
    """A full small batch."""
    return [_ids(rng, 1024) for _ in range(64)], [256] * 64


def _nano(rng: random.Random) -> Workload:
    """256 sequences, 100 to 1024 tokens in and out."""
    prompts = [_ids(rng, rng.randint(100, 1024)) for _ in range(256)]
    return prompts, [rng.randint(100, 1024) for _ in range(256)]


def _prefill(rng: random.Random) -> Workload:
    """Prompt processing only."""
    return [_ids(rng, 2048) for _ in range(64)], [1] * 64


def _prefix(rng: random.Random) -> Workload:
    """8 shared prefixes of 4096 tokens, 32 users each, 128 tokens of their own."""
    groups = [_ids(rng, 4096) for _ in range(8)]
    return [groups[i % 8] + _ids(rng, 128) for i in range(256)], [64] * 256


def _short(rng: random.Random) -> Workload:
    """512 short chats at once: about 300 tokens in and 165 out."""
    prompts = [_ids(rng, _lognormal(rng, 5.3, 0.9, range(8, 3001))) for _ in range(512)]
    return prompts, [_lognormal(rng, 4.8, 0.8, range(4, 901)) for _ in range(512)]


def _long(rng: random.Random) -> Workload:
    """Three very long prompts, then decodes over long contexts."""
    return [_ids(rng, 18_000) for _ in range(3)], [192] * 3


_CELLS: dict[str, Callable[[random.Random], Workload]] = {
    "decode1": _decode1,
    "decode64": _decode64,
    "nano": _nano,
    "prefill": _prefill,
    "prefix": _prefix,
    "short": _short,
    "long": _long,
}
NAMES = tuple(_CELLS)


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(100, 100_000) for _ in range(count)]


def _lognormal(rng: random.Random, mu: float, sigma: float, lengths: range) -> int:
    """A length of that distribution, moved up by the least one and cut at the greatest."""
    return min(lengths[-1], int(rng.lognormvariate(mu, sigma)) + lengths[0])
