"""The configuration of a native model: sizes and options of a decoder, from config.json.

Plain data without torch. `parser.parse` creates it; the model's class and its layers read it.
"""

from typing import Literal

import msgspec

from yaie.model_config.moe import MLAConfig, MLAForm, MoEConfig
from yaie.model_config.rope import RopeConfig

Activation = Literal["silu", "gelu_pytorch_tanh"]
Head = Literal["lm", "score", "none"]
"""The head after the last norm: language model, sequence classifier, or none."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a decoder.

    Attributes:
        architecture: name of the architecture in config.json.
        max_positions: longest sequence that is computed exactly, together with all its prefixes.
        position_limit: longest sequence. A model that is loaded for more than `max_positions`
            tokens rotates short sequences like long ones (longrope).
        ropes: rotary embedding of each layer.
        windows: number of last tokens that each layer sees, itself included; None: all.
        attention_scale: factor of query-key products.
        attention_softcap: scores become softcap * tanh(scores / softcap).
        logit_softcap: the same for logits.
        norm_offset: number that RMSNorm adds to its weight.
        embedding_scale: factor of embeddings, rounded to the model's dtype before use.
        qk_norm: whether each query and key head has an RMSNorm before rotation.
        num_labels: number of classes of a sequence classifier; 0 for other heads.
        extra_layers: number of layers in the checkpoint after the last one, which are not run.
        moe: mixture of experts; None: a dense model.
        mla: latent attention; None: keys and values of every head are cached.

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
        """Total width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def rope_size(self) -> int:
        """Size of the part of a head to which the rotary embedding applies."""
        return self.mla.qk_rope_head_dim if self.mla is not None else self.head_dim

    @property
    def attention_flops(self) -> int:
        """Floating-point operations (q·k and p·v) for one token and one position that it attends
        to, in all layers without a window.
        """
        return sum(4 * self.q_size for window in self.windows if window is None)

    @property
    def kv_size(self) -> int:
        """Total width of all key heads; values have the same width."""
        return self.num_kv_heads * self.head_dim


def with_mla_form(config: ModelConfig, form: MLAForm | Literal["auto"]) -> ModelConfig:
    """Return `config` with the given form of latent attention; unchanged if it has none, or if the
    form is left to it.
    """
    if config.mla is None or form == "auto":
        return config
    return msgspec.structs.replace(config, mla=msgspec.structs.replace(config.mla, form=form))
