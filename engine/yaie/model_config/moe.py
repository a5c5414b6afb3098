"""Settings of mixture-of-experts layers and of latent attention. Plain data, read by
`config_sparse`.
"""

from typing import Literal

import msgspec

Scoring = Literal["softmax", "sigmoid"]
MLAForm = Literal["absorbed", "latent", "naive"]


class MoEConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Experts of a layer and how tokens choose among them.

    Attributes:
        num_experts: experts of a layer.
        experts_per_token: how many of them a token goes through.
        intermediate_size: inner width of an expert.
        sparse: for each layer, whether experts take the place of its MLP.
        scoring: an expert's score: its share of a softmax over all, or a sigmoid of its own.
        normalize: a token's shares are its experts' scores divided by their sum.
        scale: factor on shares.
        groups: experts lie in this many equal groups.
        kept_groups: a token chooses among the experts of its best groups.
        group_best: a group is as good as the sum of its best scores, this many of them.
        correction_bias: the choice, not the share, adds a learned number to each score.
        float32_router: the router's product is computed in float32 whatever the model's dtype.
        shared_size: inner width of an MLP that every token goes through beside its experts; 0:
            there is none.
        shared_gate: a learned gate in (0, 1) for each token on that MLP's result.

    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    sparse: tuple[bool, ...]
    scoring: Scoring = "softmax"
    normalize: bool = False
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    group_best: int = 1
    correction_bias: bool = False
    float32_router: bool = False
    shared_size: int = 0
    shared_gate: bool = False


class MLAConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of latent attention, by their names in config.json.

    Attributes:
        kv_lora_rank: size of the latent that keys and values are made from.
        q_lora_rank: size of the queries' latent; None: queries are projected directly.
        qk_nope_head_dim: size of a head's key without position.
        qk_rope_head_dim: size of the rotated key that all heads share.
        v_head_dim: size of a head's value.
        interleaved: rotated pairs are (2i, 2i + 1), not (i, i + size / 2).
        bias: the projections of the latents and the output have biases.
        form: what is cached, and where attention is computed (`layers.mla_forms`).

    """

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    interleaved: bool = True
    bias: bool = False
    form: MLAForm = "absorbed"

    @property
    def qk_head_dim(self) -> int:
        """Size of a head's query and whole key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_size(self) -> int:
        """What a token leaves behind: the latent and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim
