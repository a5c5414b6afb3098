"""The three forms of multi-head latent attention, which differ in cache and computation.

`naive` caches every head's keys and values. `latent` caches the latent and the rotated key (c | r),
and computes the keys and values of the whole context again in each step. `absorbed` also caches
(c | r), but decodes without keys and values: q_nope k_nope = (q_nope W_k) c, so attention runs over
the latents, with one key head for all query heads, and W_v is applied to its result (the weight
absorption of DeepSeek-V2, arXiv:2405.04434, section 2.1.2).
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
"""Epsilon of the norms of latents, which does not depend on the config's rms_norm_eps."""
EXPANDED_TOKENS = 2**15
"""Most tokens whose keys and values are expanded at a time (one row alone may have more)."""
EXPAND_FROM = 256
"""Number of queries of a row from which on the absorbed form expands keys and values. At DeepSeek's
sizes the expansion costs what 171 queries save; with it 4096 queries of 16 heads take 0.25 ms
instead of 1.48 ms (H200)."""


class LatentCore:
    """Common part of all forms: the latent's norm and rotation, and its expansion to heads."""

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
        """Rotate q [T, heads, D] in place; write latent [T, L + R], normed and rotated, to the
        cache.
        """
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
        """Cached rows [N, L + R] -> keys [N, heads, D] and values [N, heads, Dv], contiguous."""
        mla = self.mla
        latent, rotated = rows.tensor_split((mla.kv_lora_rank,), dim=1)
        both = functional.linear(latent, self.kv_b.weight).view(len(rows), self.heads, -1)
        k_nope, v = both.tensor_split((mla.qk_nope_head_dim,), dim=2)
        k_rope = rotated.unsqueeze(1).expand(-1, self.heads, -1)
        return torch.cat((k_nope, k_rope), dim=2), v.contiguous()


class Naive:
    """The form that caches keys and values of every head."""

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
    """The form that caches latents and expands them to keys and values in each step."""

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
        """Attend with a segment's q [T, heads, D] -> [T, heads, Dv].

        Expands at most EXPANDED_TOKENS at a time, but at least one row.
        """
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
        """Attend over keys and values that are expanded for this call, in temporary pages."""
        rows, width = segment.block_tables.shape
        page_size = cache.shape[1]
        begins = torch.arange(width, device=q.device) * page_size
        read = begins < segment.seq_lens.unsqueeze(1)  # later entries may not be page ids
        pages = torch.where(read, segment.block_tables, 0).flatten()
        k, v = self.core.expand(cache.index_select(0, pages).flatten(0, 2))
        own = torch.arange(rows * width, dtype=torch.int32, device=q.device).view(rows, width)
        k_pages, v_pages = (tensor.view(-1, page_size, *tensor.shape[1:]) for tensor in (k, v))
        segment = replace(segment, block_tables=own)
        return attend(q, k_pages, v_pages, (segment,), scale=self.core.scale)


class Absorbed(Latent):
    """The form that attends to the latents directly: one key head for all query heads.

    Long chunks are expanded as in `Latent`: a query needs 2 L + R products per latent, but only
    D + Dv per expanded key and value, whose expansion costs L (D - R + Dv) once for all queries of
    the chunk.
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
