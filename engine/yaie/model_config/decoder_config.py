"""What a native model is built from: sizes and options of a decoder, read from config.json.

Plain data without torch. `config.parse` makes it; the model's class and its layers read it.
"""

from typing import Literal

import msgspec

from yaie.model_config.moe import MLAConfig, MLAForm, MoEConfig
from yaie.model_config.rope import RopeConfig

Activation = Literal["silu", "gelu_pytorch_tanh"]
Head = Literal["lm", "score", "none"]
"""What stands on the last norm: a language model, a sequence classifier, or nothing."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a decoder.

    Attributes:
        architecture: name in config.json.
        max_positions: longest sequence whose every prefix is computed exactly, too.
        position_limit: longest sequence at all. A model with room for more than `max_positions`
            tokens rotates short sequences like long ones (longrope).
        ropes: rotary embedding of each layer.
        windows: how far back each layer sees, itself included; None: everything.
        attention_scale: factor on query-key products.
        attention_softcap: scores become softcap * tanh(scores / softcap).
        logit_softcap: the same for logits.
        norm_offset: what RMSNorm adds to its weight.
        embedding_scale: factor on embeddings, rounded to the model's dtype before use.
        qk_norm: RMSNorm of each query and key head before rotation.
        num_labels: classes of a sequence classifier; 0 for other heads.
        extra_layers: layers that the checkpoint has past the last and that are not run.
        moe: experts; None: dense.
        mla: latent attention; None: keys and values of every head.

    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    position_limit: int
    rms_norm_eps: float
    ropes: tuple[RopeConfig, ...]
    windows: tuple[int | None, ...]
    attention_scale: float
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: Activation = "silu"
    norm_offset: float = 0.0
    embedding_scale: float | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    head: Head = "lm"
    num_labels: int = 0
    dtype: str | None = None
    extra_layers: int = 0
    moe: MoEConfig | None = None
    mla: MLAConfig | None = None

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def rope_size(self) -> int:
        """Size of what is rotated of a head, wholly or partly."""
        return self.mla.qk_rope_head_dim if self.mla is not None else self.head_dim

    @property
    def attention_flops(self) -> int:
        """Multiplications and additions for one token and one position that it attends to, in all
        layers that see everything: q·k and p·v.
        """
        return sum(4 * self.q_size for window in self.windows if window is None)

    @property
    def kv_size(self) -> int:
        """Width of all key heads together (values are as wide)."""
        return self.num_kv_heads * self.head_dim


def with_mla_form(config: ModelConfig, form: MLAForm) -> ModelConfig:
    """Return `config` with its latent attention, where it has one, computed in `form`."""
    if config.mla is None:
        return config
    return msgspec.structs.replace(config, mla=msgspec.structs.replace(config.mla, form=form))
