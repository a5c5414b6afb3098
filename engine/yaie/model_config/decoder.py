"""Reads the settings that all decoders have; readers that several families share."""

from collections.abc import Callable
from typing import Any

from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.fields import Raw, flag, malformed, number, positive, require
from yaie.model_config.rope import RopeConfig, read_rope

MAX_LAYERS = 1024
"""Far more than any real model has; a hostile number must not make the loader build a billion."""
GELU_TANH = "gelu_pytorch_tanh"
Windows = tuple[int | None, ...]


def decoder(raw: Raw, **own: Any) -> ModelConfig:
    """Read the settings of any decoder. `own`: fields of ModelConfig that the family sets itself.

    Raises:
        UnsupportedModelError: no native model supports a setting.
        InvalidRequestError: a value is malformed.

    """
    hidden, heads = positive(raw, "hidden_size"), positive(raw, "num_attention_heads")
    layers = layer_count(raw)
    kv_heads = positive(raw, "num_key_value_heads", default=heads)
    require(heads % kv_heads == 0, "num_key_value_heads", kv_heads)
    head_dim = positive(raw, "head_dim", default=max(1, hidden // heads))
    require(head_dim % 2 == 0, "head_dim", head_dim)
    _require_plain(raw)
    max_positions = positive(raw, "max_position_embeddings")
    common = {
        "architecture": "",
        "hidden_size": hidden,
        "intermediate_size": positive(raw, "intermediate_size"),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": positive(raw, "vocab_size"),
        "rms_norm_eps": number(raw, "rms_norm_eps", 1e-6),
        "windows": (None,) * layers,
        "attention_scale": head_dim**-0.5,
        "tie_word_embeddings": flag(raw, "tie_word_embeddings"),
        "dtype": _dtype(raw),
    }
    if "activation" not in own:
        own["activation"] = activation(raw, "hidden_act", "silu")
    if "ropes" not in own:
        own["ropes"] = (read_rope(raw, head_dim=head_dim, max_positions=max_positions),) * layers
    exact = _longest_exact(max_positions, own["ropes"])
    return ModelConfig(**common | {"max_positions": exact, "position_limit": max_positions} | own)


def layer_count(raw: Raw) -> int:
    """Read the number of layers, at most MAX_LAYERS."""
    layers = positive(raw, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise malformed("num_hidden_layers", layers)
    return layers


def activation(raw: Raw, name: str, default: str) -> str:
    """Read the name of the MLP's activation."""
    value = raw.get(name)
    value = default if value is None else value
    require(value in {"silu", GELU_TANH}, name, value)
    return str(value)


def typed_windows(raw: Raw, windowed: Callable[[int], bool]) -> Windows:
    """Read the layers' windows from `layer_types`; if it is absent, `windowed(i)` decides."""
    layers = layer_count(raw)
    kinds = raw.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if windowed(i) else "full_attention" for i in range(layers)]
    known = isinstance(kinds, list) and set(kinds) <= {"sliding_attention", "full_attention"}
    require(known and len(kinds) == layers, "layer_types", kinds)
    if "sliding_attention" not in kinds:
        return (None,) * layers
    window = positive(raw, "sliding_window")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def whole_heads(shape: ModelConfig) -> ModelConfig:
    """Refuse partial rotation, for families whose reference implementation does not have it."""
    for rope in shape.ropes:
        share = rope.rotary_dim(shape.head_dim) / shape.head_dim
        require(share == 1.0, "partial_rotary_factor", share)
    return shape


def _dtype(raw: Raw) -> str | None:
    name = raw.get("dtype") or raw.get("torch_dtype")
    if name is not None and not isinstance(name, str):
        raise malformed("dtype", name)
    return name


def _require_plain(raw: Raw) -> None:
    """Refuse attention that is not causal."""
    bidirectional = bool(raw.get("use_bidirectional_attention"))
    require(not bidirectional, "use_bidirectional_attention", bidirectional)
    causal = raw.get("is_causal", True)
    require(causal is True, "is_causal", causal)


def _longest_exact(max_positions: int, ropes: tuple[RopeConfig, ...]) -> int:
    """The model's length, limited to the length for which its rotary embeddings are exact."""
    limits = [limit for rope in ropes if (limit := rope.longest_exact) is not None]
    return min([max_positions, *limits])
