"""The three forms of latent attention: what a layer keeps of a token, and how it attends to it.

`naive` keeps every head's key and value. `latent` keeps the latent and the rotated key (c | r) and
makes keys and values of the whole context again in each step. `absorbed` keeps (c | r) too and
never makes them to decode: q_nope k_nope = (q_nope W_k) c, so attention runs over the latents
themselves, one key head for all query heads, and W_v is applied to its result.
"""

from dataclasses import replace

import torch
from torch.nn import functional

import yaie_kernels as ops
from yaie.layers.attention import Segment, StepInput, attend
from yaie.layers.interfaces import LayerCache
from yaie.layers.linear import Linear
from yaie.layers.norm import RMSNorm
from yaie.layers.options import TensorOptions
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.moe import MLAConfig

LATENT_NORM_EPS = 1e-6
"""Of the norms on latents, whatever the config says about the other norms."""
EXPANDED_TOKENS = 2**15
"""Most tokens whose keys and values are held at a time (in the latent form a row may have more)."""
EXPAND_FROM = 256
"""Queries of a row from which on its keys and values are worth making. At DeepSeek's sizes they
cost what 171 queries save; 4096 queries of 16 heads attend in 0.25 ms, not 1.48 (H200)."""


class LatentCore:
    """What the three forms share: the latent's norm and rotation, and the way back to heads."""

    def __init__(
        self, config: ModelConfig, mla: MLAConfig, cos_sin: torch.Tensor, options: TensorOptions
    ) -> None:
        self.mla = mla
        self.heads = config.num_heads
        self.scale = config.attention_scale
        self.cos_sin = cos_sin
        self.norm = RMSNorm(mla.kv_lora_rank, LATENT_NORM_EPS, options=options)
        rows = config.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        self.kv_b = Linear(mla.kv_lora_rank, {"kv_b_proj": rows}, bias=False, options=options)

    def store(
        self,
        q: torch.Tensor,
        latent: torch.Tensor,
        step: StepInput,
        cache: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """Rotate q [T, heads, D] in place; norm and rotate latent [T, L + R] into the cache."""
        ops.latent_norm_rope_write(
            q[..., self.mla.qk_nope_head_dim :],
            latent,
            self.norm.weight,
            self.norm.eps,
            step.positions,
            self.cos_sin,
            cache,
            slots,
            interleaved=self.mla.interleaved,
        )

    def expand(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stored rows [N, L + R] -> keys [N, heads, D], values [N, heads, Dv], contiguous."""
        mla = self.mla
        latent, rotated = rows.tensor_split((mla.kv_lora_rank,), dim=1)
        both = functional.linear(latent, self.kv_b.weight).view(len(rows), self.heads, -1)
        k_nope, v = both.tensor_split((mla.qk_nope_head_dim,), dim=2)
        k_rope = rotated.unsqueeze(1).expand(-1, self.heads, -1)
        return torch.cat((k_nope, k_rope), dim=2), v.contiguous()


class Naive:
    """Keys and values of every head are cached."""

    def __init__(self, core: LatentCore, index: int) -> None:
        self.core, self.index = core, index
        self.cache = LayerCache(core.heads, core.mla.qk_head_dim, core.mla.v_head_dim)

    def __call__(self, q: torch.Tensor, latent: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Attend with q [T, heads, D] and this step's latents [T, L + R] -> [T, heads, Dv]."""
        k_cache, v_cache = step.caches[self.index]
        rows = torch.empty_like(latent, memory_format=torch.contiguous_format)
        in_order = torch.arange(len(rows), device=rows.device)
        self.core.store(q, latent, step, rows.view(-1, 1, 1, rows.shape[1]), in_order)
        ops.write_kv(*self.core.expand(rows), k_cache, v_cache, step.slot_mapping)
        return attend(q, k_cache, v_cache, step.segments, scale=self.core.scale)


class Latent:
    """Latents are cached; each step makes the keys and values of every token it reads."""

    def __init__(self, core: LatentCore, index: int) -> None:
        self.core, self.index = core, index
        self.cache = LayerCache(1, core.mla.latent_size, 0)

    def __call__(self, q: torch.Tensor, latent: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Attend with q [T, heads, D] and this step's latents [T, L + R] -> [T, heads, Dv]."""
        cache = step.caches[self.index][0]
        self.core.store(q, latent, step, cache, step.slot_mapping)
        outputs = [
            self.attend(
                q[segment.first : segment.last],
                cache,
                replace(segment, first=0, last=segment.last - segment.first),
            )
            for segment in step.segments
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def attend(self, q: torch.Tensor, cache: torch.Tensor, segment: Segment) -> torch.Tensor:
        """Attend with a segment's q [T, heads, D], as many rows at a time as may be expanded."""
        segment = segment.gathered(cache.shape[1])
        rows, width = segment.block_tables.shape
        step = max(1, EXPANDED_TOKENS // (width * cache.shape[1]))
        if rows <= step:
            return self._expanded(q, cache, segment)
        out = q.new_zeros(*q.shape[:2], self.core.mla.v_head_dim)
        token = torch.arange(len(q), device=q.device)
        for low in range(0, rows, step):
            starts = segment.query_start[low : low + step + 1]
            piece = replace(
                segment,
                block_tables=segment.block_tables[low : low + step],
                seq_lens=segment.seq_lens[low : low + step],
                query_start=starts,
            )
            mine = (token >= starts[0]) & (token < starts[-1])
            out = torch.where(mine[:, None, None], self._expanded(q, cache, piece), out)
        return out

    def _expanded(self, q: torch.Tensor, cache: torch.Tensor, segment: Segment) -> torch.Tensor:
        """Attend over keys and values made for this call, in pages of their own."""
        rows, width = segment.block_tables.shape
        page_size = cache.shape[1]
        begins = torch.arange(width, device=q.device) * page_size
        read = begins < segment.seq_lens.unsqueeze(1)  # later entries may name no page at all
        pages = torch.where(read, segment.block_tables, 0).flatten()
        k, v = self.core.expand(cache.index_select(0, pages).flatten(0, 2))
        own = torch.arange(rows * width, dtype=torch.int32, device=q.device).view(rows, width)
        k_pages, v_pages = (tensor.view(-1, page_size, *tensor.shape[1:]) for tensor in (k, v))
        segment = replace(segment, block_tables=own)
        return attend(q, k_pages, v_pages, (segment,), scale=self.core.scale)


class Absorbed(Latent):
    """Latents are attended to as they are: one key head for all query heads.

    Long chunks are the exception. A query pays 2 L + R products for each latent, against D + Dv
    for each key and value, which cost L (D - R + Dv) to make once for all queries of the chunk.
    """

    def __init__(self, core: LatentCore, index: int) -> None:
        super().__init__(core, index)
        mla = core.mla
        by_head = core.kv_b.weight.view(core.heads, -1, mla.kv_lora_rank)
        self.key_weight, value_weight = by_head.tensor_split((mla.qk_nope_head_dim,), dim=1)
        self.value_weight = value_weight.transpose(1, 2)  # [heads, L, Dv]; all views of kv_b

    def attend(self, q: torch.Tensor, cache: torch.Tensor, segment: Segment) -> torch.Tensor:
        """Attend with a segment's q [T, heads, D] -> [T, heads, Dv]."""
        if segment.max_query_len >= EXPAND_FROM and segment.max_seq_len <= EXPANDED_TOKENS:
            return super().attend(q, cache, segment)
        mla = self.core.mla
        q_nope, q_rope = q.tensor_split((mla.qk_nope_head_dim,), dim=2)
        query = q.new_empty(*q.shape[:2], mla.latent_size)
        absorbed, rotated = query.tensor_split((mla.kv_lora_rank,), dim=2)
        torch.bmm(q_nope.transpose(0, 1), self.key_weight, out=absorbed.transpose(0, 1))
        rotated.copy_(q_rope)
        values = cache[..., : mla.kv_lora_rank]
        out = attend(query, cache, values, (segment,), scale=self.core.scale)
        return torch.bmm(out.transpose(0, 1), self.value_weight).transpose(0, 1)


Form = Naive | Latent | Absorbed
FORMS: dict[str, type[Naive] | type[Latent] | type[Absorbed]] = {
    "naive": Naive,
    "latent": Latent,
    "absorbed": Absorbed,
}
