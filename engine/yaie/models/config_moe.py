"""Settings of mixture-of-experts layers and of latent attention."""

import msgspec


class MoEConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Experts of a layer and how tokens choose among them."""

    num_experts: int
    experts_per_token: int
    intermediate_size: int


class MLAConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of latent attention."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
