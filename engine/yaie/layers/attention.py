"""Paged attention (PagedAttention, Kwon et al. 2023, arXiv:2309.06180): write this step's keys and
values to the cache, then attend to each sequence through its pages.

A step is divided into segments of rows of the same kind (decodes, prefill chunks), because a kernel
that is fast for one query per sequence is slow for long chunks.
"""

from dataclasses import dataclass, replace

import torch

import yaie_kernels as ops
from yaie.layers.norm import RMSNorm


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows that one attention call computes.

    Attributes:
        first: index of the segment's first token among the step's T tokens.
        last: index after its last token.
        block_tables: [lines, width] int32 page numbers, width * page_size >= max_seq_len.
        seq_lens: [B] int32 context length of each row, this step's tokens included.
        query_start: [B + 1] int32 offsets of the rows' tokens, relative to `first`.
        max_query_len: largest number of tokens of one row.
        max_seq_len: longest context of a row (inside a CUDA graph an estimate; see `ops`).
        rows: [B] the line of each row in `block_tables`; None: row b has line b.

    Inside a CUDA graph segments may overlap: a row of length 0 or without tokens is padding, and
    tokens that belong to no row of a segment belong to another segment or are padding.

    """

    first: int
    last: int
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start: torch.Tensor
    max_query_len: int
    max_seq_len: int
    rows: torch.Tensor | None = None

    def gathered(self, page_size: int) -> "Segment":
        """The same segment with `block_tables` in the order of its rows, and without `rows`."""
        if self.rows is None:
            return self
        width = -(-self.max_seq_len // page_size)
        tables = self.block_tables[:, :width].index_select(0, self.rows)
        return replace(self, block_tables=tables, rows=None)


@dataclass(frozen=True, slots=True)
class StepInput:
    """Input of all layers for one step: T tokens of B rows.

    Attributes:
        positions: [T] int64 position of each token in its sequence.
        slot_mapping: [T] int64 cache slot of each token, page * page_size + offset.
        segments: the rows, divided by kind; they cover the T tokens in order.
        caches: (keys, values) of each layer, [pages, page_size, kv_heads, head_dim].

    """

    positions: torch.Tensor
    slot_mapping: torch.Tensor
    segments: tuple[Segment, ...]
    caches: tuple[tuple[torch.Tensor, torch.Tensor], ...]


class PagedAttention:
    """Attention of layer `index` over its pages.

    Args:
        index: index of the layer, which selects its cache.
        scale: factor of query-key products.
        cos_sin: [max_positions, rotary_dim] float32 angle table (`layers.rotary`).
        head_norms: RMSNorm of each query head and each key head before rotation, or None.
        window: number of last tokens that a query sees, itself included; None: all.
        softcap: scores become softcap * tanh(scores / softcap); None: no soft cap.

    """

    def __init__(
        self,
        index: int,
        scale: float,
        cos_sin: torch.Tensor,
        *,
        head_norms: tuple[RMSNorm, RMSNorm] | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> None:
        self.index = index
        self.scale = scale
        self.cos_sin = cos_sin
        self.head_norms = head_norms
        self.window = window
        self.softcap = softcap

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: StepInput
    ) -> torch.Tensor:
        """Attend with q [T, heads, D], k and v [T, kv_heads, D] -> [T, heads * D].

        Includes head norms, rotation and the write to the cache; q and k are overwritten.
        """
        k_cache, v_cache = step.caches[self.index]
        norms = self.head_norms
        ops.qk_norm_rope_write(
            q,
            k,
            v,
            norms[0].weight if norms else None,
            norms[1].weight if norms else None,
            norms[0].eps if norms else 0.0,
            step.positions,
            self.cos_sin,
            k_cache,
            v_cache,
            step.slot_mapping,
            norms[0].offset if norms else 0.0,
        )
        output = attend(
            q,
            k_cache,
            v_cache,
            step.segments,
            scale=self.scale,
            window=self.window,
            softcap=self.softcap,
        )
        return output.flatten(1)


def attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    segments: tuple[Segment, ...],
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attend with q [T, heads, D] over a layer's caches -> [T, heads, Dv], segment by segment."""
    out = q.new_empty((*q.shape[:2], v_cache.shape[-1]))
    for segment in segments:
        ops.paged_attention(
            q[segment.first : segment.last],
            k_cache,
            v_cache,
            segment.block_tables,
            segment.seq_lens,
            segment.query_start,
            scale=scale,
            max_query_len=segment.max_query_len,
            max_seq_len=segment.max_seq_len,
            window=window,
            softcap=softcap,
            rows=segment.rows,
            out=out[segment.first : segment.last],
        )
    return out
