"""Paged attention: write this step's keys and values, then read each sequence through its pages.

A step is cut into segments of alike rows (decodes, prefill chunks), because a kernel that suits one
query per sequence suits long chunks badly.
"""

from dataclasses import dataclass

import torch

import yaie_kernels as ops


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring rows that one attention call handles.

    Attributes:
        first: first token of the segment in the step's flat token axis.
        last: one past its last token.
        block_tables: [B, width] int32 page numbers, width * page_size >= max_seq_len.
        seq_lens: [B] int32 context length of each row, this step's tokens included.
        query_start: [B + 1] int32 offsets of the rows' tokens, relative to `first`.
        max_query_len: most tokens of one row.
        max_seq_len: longest context of a row (or an upper bound, inside a CUDA graph).

    """

    first: int
    last: int
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start: torch.Tensor
    max_query_len: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class StepInput:
    """What every layer needs to know about a step: T tokens of B rows.

    Attributes:
        positions: [T] int64 position of each token in its sequence.
        kv_slots: [T] int64 page * page_size + offset where each token's key and value go.
        segments: the rows, cut by kind; they cover the T tokens in order.
        caches: (keys, values) of each layer, [pages, page_size, kv_heads, head_dim].

    """

    positions: torch.Tensor
    kv_slots: torch.Tensor
    segments: tuple[Segment, ...]
    caches: tuple[tuple[torch.Tensor, torch.Tensor], ...]


class PagedAttention:
    """Attention of layer `index` over its pages; `window` limits how far back a query sees."""

    def __init__(self, index: int, head_dim: int, window: int | None = None) -> None:
        self.index = index
        self.scale = head_dim**-0.5
        self.window = window

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: StepInput
    ) -> torch.Tensor:
        """Attend with q [T, heads, D], k and v [T, kv_heads, D] -> [T, heads * D]."""
        k_cache, v_cache = step.caches[self.index]
        ops.write_kv(k, v, k_cache, v_cache, step.kv_slots)
        outputs = [
            self._attend(q[segment.first : segment.last], k_cache, v_cache, segment)
            for segment in step.segments
        ]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output.flatten(1)

    def _attend(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, segment: Segment
    ) -> torch.Tensor:
        return ops.paged_attention(
            q,
            k_cache,
            v_cache,
            segment.block_tables,
            segment.seq_lens,
            segment.query_start,
            scale=self.scale,
            max_query_len=segment.max_query_len,
            max_seq_len=segment.max_seq_len,
            window=self.window,
        )
