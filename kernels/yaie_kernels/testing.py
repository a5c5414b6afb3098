"""Accuracy check of kernels, and the float64 definitions that serve as ground truth.

No tolerance is tuned. Errors are measured against float64 and compared with plain PyTorch's error
at the same dtype, the idea of flash-attn's tests: a kernel's root mean square error may be three
times as large (an online softmax rounds more often than a single pass), its largest error five
times. An error of one epsilon relative to the exact values is always allowed.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RATIO = {"rms": 3.0, "largest": 5.0}


def judge(name: str, got: Tensor, plain: Tensor, exact: Tensor) -> None:
    """Raise AssertionError if the error of `got` exceeds the allowed multiple of PyTorch's error.

    got: the kernel's result; plain: PyTorch's result at got's dtype; exact: the definition in
    float64.
    """
    if got.shape != exact.shape:
        raise AssertionError(f"{name}: shape {tuple(got.shape)}, want {tuple(exact.shape)}")
    if exact.numel() == 0:
        return
    exact = exact.double().cpu()
    nothing = torch.zeros_like(exact)
    unit = torch.finfo(got.dtype).eps
    for kind, error in (("rms", _rms), ("largest", _largest)):
        allowed = max(RATIO[kind] * error(plain, exact), unit * error(nothing, exact))
        found = error(got, exact)
        if not found <= allowed:  # also true for NaN
            raise AssertionError(f"{name}: {kind} error {found:.3e}, allowed {allowed:.3e}")


def _rms(value: Tensor, exact: Tensor) -> float:
    return float((value.double().cpu() - exact).square().mean().sqrt())


def _largest(value: Tensor, exact: Tensor) -> float:
    return float((value.double().cpu() - exact).abs().max())


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """Attention of q[n,Hq,D] at the end of k, v [L,Hk,D] -> [n,Hq,D], by the full score matrix."""
    n, length = q.shape[0], k.shape[0]
    grouped = q.reshape(n, k.shape[1], -1, q.shape[2])
    scores = torch.einsum("qhgd,khd->hgqk", grouped, k) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    own = torch.arange(length - n, length, device=q.device).unsqueeze(1)
    token = torch.arange(length, device=q.device).unsqueeze(0)
    hidden = token > own
    if window is not None:
        hidden |= token <= own - window
    shares = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("hgqk,khd->qhgd", shares, v).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class PagedCase:
    """A batch over a paged cache; unused slots are NaN, unused table entries are out of range."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start: Tensor
    max_query_len: int
    max_seq_len: int

    @property
    def args(self) -> tuple[Tensor, ...]:
        return (
            self.q,
            self.k_cache,
            self.v_cache,
            self.block_tables,
            self.seq_lens,
            self.query_start,
        )

    def dense(
        self, dtype: torch.dtype, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """The result of `dense_attention`, sequence by sequence, computed at `dtype`."""
        shape = (*self.q.shape[:2], self.v_cache.shape[-1])
        out = torch.zeros(shape, dtype=dtype, device=self.q.device)
        starts = self.query_start.tolist()
        for row, length in enumerate(self.seq_lens.tolist()):
            mine = slice(starts[row], starts[row + 1])
            if mine.stop > mine.start:
                pages = self.block_tables[row].long().clamp(max=self.k_cache.shape[0] - 1)
                k, v = (
                    cache[pages].flatten(0, 1)[:length].to(dtype)
                    for cache in (self.k_cache, self.v_cache)
                )
                out[mine] = dense_attention(self.q[mine].to(dtype), k, v, scale, window, softcap)
        return out


def paged_case(
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    *,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int | None = None,
    latent: bool = False,
    page_size: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> PagedCase:
    """A random batch; q is a strided view, as from a fused projection.

    value_dim: size of a value (default: head_dim). latent: values are the keys' first columns.
    """
    generator = torch.Generator().manual_seed(seed)
    pages_of = [-(-length // page_size) for length in seq_lens]
    total_pages = sum(pages_of) + 3
    order = (torch.randperm(total_pages - 1, generator=generator) + 1).tolist()
    width = max([*pages_of, 1]) + 2
    tables = torch.full((len(seq_lens), width), 2**30, dtype=torch.int32)  # must not be read
    value_dim = value_dim or head_dim
    caches = [
        torch.full((total_pages, page_size, kv_heads, size), math.nan, dtype=dtype)
        for size in (head_dim, value_dim)
    ]
    for row, length in enumerate(seq_lens):
        mine = torch.tensor([order.pop() for _ in range(pages_of[row])], dtype=torch.int64)
        tables[row, : len(mine)] = mine.int()
        slots = (mine[:, None] * page_size + torch.arange(page_size)).flatten()[:length]
        for cache in caches:
            values = torch.randn(length, kv_heads, cache.shape[-1], generator=generator)
            cache.flatten(0, 1)[slots] = values.to(dtype)
    fused = torch.randn(sum(query_lens), q_heads + 2 * kv_heads, head_dim, generator=generator)
    starts = torch.tensor([0, *query_lens]).cumsum(0)
    keys = caches[0].to(device)
    return PagedCase(
        q=fused.to(dtype).to(device)[:, :q_heads],
        k_cache=keys,
        v_cache=keys[..., :value_dim] if latent else caches[1].to(device),
        block_tables=tables.to(device),
        seq_lens=torch.tensor(list(seq_lens), dtype=torch.int32, device=device),
        query_start=starts.to(torch.int32).to(device),
        max_query_len=max([*query_lens, 1]),
        max_seq_len=max([*seq_lens, 1]),
    )


@dataclass(frozen=True, slots=True)
class MoECase:
    """Tokens, expert weights, and the experts and shares that a router chose."""

    x: Tensor
    gate_up: Tensor
    down: Tensor
    experts: Tensor
    shares: Tensor

    @property
    def args(self) -> tuple[Tensor, ...]:
        return self.x, self.gate_up, self.down, self.experts, self.shares

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Apply every expert to every token, then sum the chosen ones by share, at `dtype`."""
        x, gate_up, down = (tensor.to(dtype) for tensor in (self.x, self.gate_up, self.down))
        gate, up = torch.einsum("th,eih->tei", x, gate_up).chunk(2, dim=-1)
        each = torch.einsum("tei,ehi->teh", gate * gate.sigmoid() * up, down)
        chosen = each.gather(1, self.experts.unsqueeze(2).expand(-1, -1, x.shape[1]))
        mixed: Tensor = (chosen * self.shares.to(dtype).unsqueeze(2)).sum(dim=1)
        return mixed


def moe_case(
    tokens: int,
    *,
    experts: int,
    top_k: int,
    hidden: int = 64,
    inner: int = 48,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> MoECase:
    """Random tokens, weights and choices; values stay near one through both products."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator)
        return values.div_(shape[-1] ** 0.5).to(dtype).to(device)

    order = torch.rand(tokens, experts, generator=generator).argsort(dim=1)
    shares = torch.rand(tokens, top_k, generator=generator)
    return MoECase(
        x=normal(tokens, hidden) * hidden**0.5,
        gate_up=normal(experts, 2 * inner, hidden),
        down=normal(experts, hidden, inner),
        experts=order[:, :top_k].contiguous().to(device),
        shares=shares.to(device),
    )
