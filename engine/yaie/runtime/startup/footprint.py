"""What a native model takes, from its configuration alone: weights, KV cache, activations.

Pure and without torch. The tests compare it with the tensors that the models themselves allocate,
for a variant of every family. The memory check before a load and `yaie plan` use it.
"""

from dataclasses import dataclass
from typing import Final

from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.families import FAMILIES, GEMMA
from yaie.model_config.moe import MLAConfig, MoEConfig

STEP_TOKENS: Final = {"cpu": 512, "cuda": 8192}
"""Default upper bound of the step budget, by device."""
_WIDE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model takes.

    Attributes:
        parameters: number of weights that are loaded.
        wide: those of them that are float32 in every dtype.
        kv_elements: numbers that the KV cache keeps per token, in all layers.

    """

    parameters: int
    wide: int
    kv_elements: int

    def weight_bytes(self, item_bytes: int) -> int:
        """Bytes of the weights in a dtype of `item_bytes`."""
        return (self.parameters - self.wide) * item_bytes + self.wide * _WIDE_BYTES

    def kv_bytes_per_token(self, item_bytes: int) -> int:
        """Bytes of one token in the KV cache, in all layers."""
        return self.kv_elements * item_bytes


def of(config: ModelConfig) -> Footprint:
    """The footprint of a native model."""
    layers = [_layer(config, index) for index in range(config.num_layers)]
    ends = config.vocab_size * config.hidden_size + config.hidden_size  # embedding, last norm
    if config.head == "lm" and not config.tie_word_embeddings:
        ends += config.vocab_size * config.hidden_size
    elif config.head == "score":
        ends += config.num_labels * config.hidden_size
    wide = 0 if config.moe is None else sum(config.moe.sparse) * _wide(config, config.moe)
    return Footprint(ends + sum(layers), wide, config.num_layers * kv_elements(config))


def kv_elements(config: ModelConfig) -> int:
    """Numbers that one layer keeps per token: of latent attention its latent, unless the keys and
    values of every head are kept (`mla_form` naive).
    """
    mla = config.mla
    if mla is None:
        return 2 * config.kv_size
    if mla.form == "naive":
        return config.num_heads * (mla.qk_head_dim + mla.v_head_dim)
    return mla.latent_size


def activation_bytes(config: ModelConfig, item_bytes: int, *, tokens: int, rows: int) -> int:
    """About what a step of `tokens` takes beside weights and cache, with logits of `rows` of them.

    An estimate, rather too high: the engine measures it on the GPU. The largest intermediate
    results of a layer (the residual stream, a projection and what is made of it), or the logits
    with their copy in float32, whichever is more.
    """
    attention = 2 * (config.q_size + 2 * config.kv_size)
    if config.mla is not None:
        attention = 2 * config.num_heads * (config.mla.qk_head_dim + config.mla.v_head_dim)
    inner = 3 * config.intermediate_size
    if (moe := config.moe) is not None:
        experts = moe.experts_per_token * (3 * moe.intermediate_size + config.hidden_size)
        inner = max(inner, experts + 3 * moe.shared_size)
    layer = tokens * (3 * config.hidden_size + max(attention, inner)) * item_bytes
    logits = rows * config.vocab_size * (item_bytes + _WIDE_BYTES)
    return max(layer, logits + tokens * config.hidden_size * item_bytes)


def _layer(config: ModelConfig, index: int) -> int:
    """Weights of one layer."""
    sandwiched = FAMILIES[config.architecture].model == GEMMA  # norms after its parts, too
    norms = 4 if sandwiched else 2
    attention = _attention(config) if config.mla is None else _latent(config, config.mla)
    return norms * config.hidden_size + attention + _feed_forward(config, index)


def _attention(config: ModelConfig) -> int:
    rows = config.q_size + 2 * config.kv_size
    projections = config.hidden_size * (rows + config.q_size)
    biases = rows * config.qkv_bias + config.hidden_size * config.out_bias
    return projections + biases + 2 * config.head_dim * config.qk_norm


def _latent(config: ModelConfig, mla: MLAConfig) -> int:
    """Weights of latent attention (`layers.mla`)."""
    hidden, heads = config.hidden_size, config.num_heads
    q_rows, rank = heads * mla.qk_head_dim, mla.q_lora_rank
    first = (q_rows if rank is None else rank) + mla.latent_size
    down = first * (hidden + mla.bias)
    q_up = 0 if rank is None else rank + rank * q_rows  # norm, projection
    kv_up = mla.kv_lora_rank * (1 + heads * (mla.qk_nope_head_dim + mla.v_head_dim))
    out = hidden * (heads * mla.v_head_dim + mla.bias)
    return down + q_up + kv_up + out


def _feed_forward(config: ModelConfig, index: int) -> int:
    moe = config.moe
    if moe is None or not moe.sparse[index]:
        return _mlp(config, config.intermediate_size)
    router = moe.num_experts * (config.hidden_size + moe.correction_bias)
    experts = moe.num_experts * 3 * config.hidden_size * moe.intermediate_size
    shared = _mlp(config, moe.shared_size) if moe.shared_size else 0
    return router + experts + shared + config.hidden_size * moe.shared_gate


def _mlp(config: ModelConfig, inner: int) -> int:
    biases = (2 * inner + config.hidden_size) * config.mlp_bias
    return 3 * config.hidden_size * inner + biases


def _wide(config: ModelConfig, moe: MoEConfig) -> int:
    """Weights of a layer's router that are float32 in every dtype."""
    wide = moe.num_experts * config.hidden_size if moe.float32_router else 0
    return wide + moe.num_experts * moe.correction_bias
