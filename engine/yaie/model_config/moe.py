"""Settings of mixture-of-experts layers and of latent attention: plain data, made by `sparse`."""

from typing import Literal

import msgspec

Scoring = Literal["softmax", "sigmoid"]
MLAForm = Literal["absorbed", "latent", "naive"]


class MoEConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Experts of a layer, and how they are chosen (`ops.route_experts` defines the arithmetic).

    Attributes:
        num_experts: number of experts per layer.
        experts_per_token: number of experts chosen per token.
        intermediate_size: inner width of an expert.
        sparse: for each layer, whether it has experts instead of an MLP.
        scoring: an expert's score: softmax over all experts, or sigmoid of its own logit.
        normalize: whether a token's shares are divided by their sum.
        scale: factor of shares.
        groups: number of equal groups of experts.
        kept_groups: number of best groups among whose experts a token chooses.
        group_best: number of best scores whose sum ranks a group.
        correction_bias: whether a learned number is added to each score for the choice, but not
            for the share.
        float32_router: whether the router's product is computed in float32 for every dtype.
        shared_size: inner width of the shared expert, an MLP for every token; 0: there is none.
        shared_gate: whether a learned gate in (0, 1) multiplies the shared expert's result.

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
        kv_lora_rank: size of the latent from which keys and values are computed.
        q_lora_rank: size of the queries' latent; None: queries are projected directly.
        qk_nope_head_dim: size of the part of a head's key without position.
        qk_rope_head_dim: size of the rotated key that all heads share.
        v_head_dim: size of a head's value.
        interleaved: whether rotated pairs are (2i, 2i + 1) instead of (i, i + size / 2).
        bias: whether the projections to the latents and of the output have biases.
        form: what is cached and how attention is computed (`layers.mla_forms`).

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
        """Size of a head's query and of its whole key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_size(self) -> int:
        """Size of what is cached per token: the latent and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim
