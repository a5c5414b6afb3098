"""Memory arithmetic, checked against models whose sizes are public."""

from typing import Any

import pytest

from yaie_api.resource import capacity

LLAMA_8B: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def test_parameters_of_a_known_model() -> None:
    """Llama 3.1 8B has 8,030,261,248 parameters, 266,240 of them in norms."""
    assert capacity.shape_of(LLAMA_8B).parameters == 8_030_261_248 - 266_240


def test_a_tied_head_counts_once() -> None:
    tied = capacity.shape_of(LLAMA_8B | {"tie_word_embeddings": True})
    difference = capacity.shape_of(LLAMA_8B).parameters - tied.parameters
    assert difference == 128256 * 4096


def test_kv_bytes_of_a_token() -> None:
    assert capacity.kv_bytes_per_token(32, 8, 128, 2) == 131_072


def test_heads_default_to_the_query_heads_and_head_dim_to_their_share() -> None:
    shape = capacity.shape_of({k: v for k, v in LLAMA_8B.items() if k != "num_key_value_heads"})
    assert (shape.kv_heads, shape.head_dim) == (32, 128)


def test_what_fits_beside_the_weights() -> None:
    fits = capacity.estimate(
        capacity.shape_of(LLAMA_8B),
        memory_bytes=80 * 10**9,
        memory_fraction=0.9,
        max_model_len=8192,
    )
    expected = (72 * 10**9 - fits.weight_bytes - 2**30) // 131_072
    assert fits.kv_tokens == expected
    assert fits.max_concurrency == pytest.approx(expected / 8192)


def test_nothing_fits_when_the_weights_do_not() -> None:
    fits = capacity.estimate(
        capacity.shape_of(LLAMA_8B),
        memory_bytes=8 * 10**9,
        memory_fraction=0.9,
        max_model_len=8192,
    )
    assert (fits.kv_tokens, fits.max_concurrency) == (0, 0.0)


def test_narrow_types_take_fewer_bytes() -> None:
    shape = capacity.shape_of(LLAMA_8B)
    sizes: dict[str, Any] = {"memory_bytes": 2**37, "memory_fraction": 1.0, "max_model_len": 4096}
    plain = capacity.estimate(shape, **sizes)
    narrow = capacity.estimate(shape, dtype="fp8", kv_dtype="fp8", **sizes)
    assert narrow.weight_bytes * 2 == plain.weight_bytes
    assert narrow.kv_bytes_per_token * 2 == plain.kv_bytes_per_token
