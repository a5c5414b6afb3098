"""Estimates a model's memory and the context that fits: pure arithmetic, in bytes and tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, itemsize: int) -> int:
    """Bytes of one token's keys and values in all layers."""
    return 2 * layers * kv_heads * head_dim * itemsize


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a dense decoder that determine its memory."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool

    @property
    def parameters(self) -> int:
        """Number of weights, without norms and biases (less than 0.1 %)."""
        attention = self.hidden_size * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        mlp = 3 * self.hidden_size * self.intermediate_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied else 2)
        return self.layers * (attention + mlp) + embeddings


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity for KV cache: `kv_tokens` tokens, `max_concurrency` sequences of full length."""

    weight_bytes: int
    kv_bytes_per_token: int
    kv_tokens: int
    max_concurrency: float


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Read the shape from a config.json-like mapping.

    Raises:
        KeyError: a size that has no default is missing.

    """
    heads = int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    return Shape(
        hidden_size=hidden,
        intermediate_size=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocab_size=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def estimate(
    shape: Shape,
    *,
    memory_bytes: int,
    memory_fraction: float,
    max_model_len: int,
    dtype: str = "bfloat16",
    kv_dtype: str | None = None,
    reserve_bytes: int = 2**30,
) -> Capacity:
    """Estimate the KV cache that fits into `memory_bytes * memory_fraction` besides the weights.

    `reserve_bytes` is kept free for activations and captured graphs. `kv_tokens` is 0 if nothing
    is left.

    Raises:
        KeyError: the dtype is unknown.

    """
    weights = shape.parameters * DTYPE_BYTES[dtype]
    per_token = kv_bytes_per_token(
        shape.layers, shape.kv_heads, shape.head_dim, DTYPE_BYTES[kv_dtype or dtype]
    )
    free = int(memory_bytes * memory_fraction) - weights - reserve_bytes
    tokens = max(0, free // per_token)
    return Capacity(weights, per_token, tokens, max_concurrency(tokens, max_model_len))


def max_concurrency(kv_tokens: int, max_model_len: int) -> float:
    """Number of sequences of `max_model_len` tokens that the KV cache holds at once."""
    return kv_tokens / max_model_len
