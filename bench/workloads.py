"""The workloads that every engine is timed on: token ids in, token ids out, EOS ignored.

A workload is (prompts, output_lens); ids come from a fixed seed, so that every engine sees the same
work. Models are shapes only: every engine loads random bfloat16 weights.
"""

import json
import random
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
NAMES = ("decode1", "decode64", "nano", "prefill", "prefix")
Workload = tuple[list[list[int]], list[int]]


def write_model_dir(name: str, root: Path) -> Path:
    """Write config.json of a model shape under `root`; returns the model's folder."""
    path = root / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(MODELS[name]))
    return path


def workload(name: str) -> Workload:
    """Return (prompts, output_lens) of a workload.

    Raises:
        KeyError: an unknown name.

    """
    rng = random.Random(0)
    if name == "decode1":  # one user, latency per token
        return [_ids(rng, 128)], [512]
    if name == "decode64":  # a full small batch
        return [_ids(rng, 1024) for _ in range(64)], [256] * 64
    if name == "nano":  # 256 sequences, 100..1024 tokens in and out
        prompts = [_ids(rng, rng.randint(100, 1024)) for _ in range(256)]
        return prompts, [rng.randint(100, 1024) for _ in range(256)]
    if name == "prefill":  # prompt processing only
        return [_ids(rng, 2048) for _ in range(64)], [1] * 64
    if name == "prefix":  # 8 shared 4096-token prefixes, 32 users each, 128-token tails
        groups = [_ids(rng, 4096) for _ in range(8)]
        return [groups[i % 8] + _ids(rng, 128) for i in range(256)], [64] * 256
    raise KeyError(name)


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(100, 100_000) for _ in range(count)]
