"""The engine's operations with their shapes and dtypes; `registry` selects the backend.

T tokens of a step, B sequences, H hidden size, Hq query heads, Hk KV heads (Hq = G * Hk),
D head_dim, V vocabulary, E experts, I size inside an MLP. Caches are contiguous
[pages, page_size, Hk, D]. Row strides of activations may be larger than the row (views of a fused
projection); the last dimension is contiguous. No operation of a step synchronises with the device,
and grids depend only on shapes and host integers, so a CUDA graph can capture every one of them.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

from typing import Literal

from torch import Tensor

from yaie_kernels.registry import backend

Gate = Literal["silu", "gelu_tanh"]
"""Activation of the first half of a gated projection; its result multiplies the second half."""


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """RMSNorm of the last dimension: x / sqrt(mean(x**2) + eps) * (weight + offset).

    x[T,H] or x[T,heads,D], weight[H] or [D] -> new contiguous tensor of x's shape and dtype.
    Computed in float32, weight + offset included, and rounded once. Zhang & Sennrich 2019
    (arXiv:1910.07467); Gemma has offset 1.
    """
    return backend(x).rms_norm(x, weight, eps, offset)  # type: ignore[no-any-return]  # found by name


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(rms_norm(total), total) with total = x + residual [T,H], rounded before the norm."""
    return backend(x).add_rms_norm(x, residual, weight, eps, offset)  # type: ignore[no-any-return]  # same


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, gate: Gate | None = None
) -> Tensor:
    """x[T,K] @ weight[N,K]^T + bias[N] -> [T,N]; with a gate (see `silu_mul`) -> [T,N/2].

    The weight and the bias must be constant: a kernel may read them before the kernels launched
    earlier have finished, so none of those may write them.
    """
    return backend(x).linear(x, weight, bias, gate=gate)  # type: ignore[no-any-return]  # same


def norm_linear(
    x: Tensor,
    residual: Tensor | None,
    norm_weight: Tensor,
    eps: float,
    offset: float,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: Gate | None = None,
) -> tuple[Tensor, Tensor]:
    """(linear(rms_norm(total)), total) with total = x + residual, or x if residual is None.

    x, residual [T,K]; norm_weight[K], eps and offset as in `rms_norm`, the rest as in `linear`.
    """
    return backend(x).norm_linear(  # type: ignore[no-any-return]  # module chosen by name
        x, residual, norm_weight, eps, offset, weight, bias, gate=gate
    )


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotate the first R dimensions of q[T,Hq,D] and k[T,Hk,D] in place.

    Pairs are (i, i + R/2), as in GPT-NeoX. positions[T] int64 index cos_sin[max_positions, R]
    float32 = (cos[R/2] | sin[R/2]), R <= D; dimensions from R on do not change. Su et al. 2021
    (arXiv:2104.09864).
    """
    backend(q).rope_(q, k, positions, cos_sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for gate_up[T,2I] = (gate | up) -> [T,I] (SwiGLU, arXiv:2002.05202)."""
    return backend(gate_up).silu_mul(gate_up)  # type: ignore[no-any-return]  # found by name


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    """gelu(gate) * up, GELU's tanh approximation (arXiv:1606.08415); shapes as in `silu_mul`."""
    return backend(gate_up).gelu_tanh_mul(gate_up)  # type: ignore[no-any-return]  # found by name


def route_experts(
    logits: Tensor,
    bias: Tensor | None,
    *,
    top_k: int,
    sigmoid: bool = False,
    normalize: bool = False,
    scale: float = 1.0,
    groups: int = 1,
    kept_groups: int = 1,
    group_best: int = 1,
) -> tuple[Tensor, Tensor]:
    """The best K = top_k experts of each token -> (experts[T,K] int64, shares[T,K] float32).

    logits[T,E] any float dtype. The score of an expert is the sigmoid of its logit, or the softmax
    over all experts. The E experts form `groups` groups of equal size; a group's rank is the sum of
    its `group_best` best scores + bias, and only the `kept_groups` best groups take part. Their
    experts are ranked by score + bias[E] float32. A share is the score (without bias), divided by
    the sum of the K shares if `normalize`, times `scale`. All arithmetic is float32.

    Softmax: Mixtral (arXiv:2401.04088), Qwen; groups ranked by their best expert: DeepSeek-V2
    (arXiv:2405.04434); sigmoid, bias and groups ranked by their two best: DeepSeek-V3
    (arXiv:2412.19437).
    """
    return backend(logits).route_experts(  # type: ignore[no-any-return]  # found by name
        logits,
        bias,
        top_k=top_k,
        sigmoid=sigmoid,
        normalize=normalize,
        scale=scale,
        groups=groups,
        kept_groups=kept_groups,
        group_best=group_best,
    )


def moe_mlp(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
    """Sum over a token's K chosen experts of share * down(silu(gate(x)) * up(x)) -> [T,H].

    x[T,H]; gate_up[E,2I,H] = (gate | up rows) and down[E,H,I], contiguous; experts[T,K] int64, the
    distinct ids of each token's experts; shares[T,K] float32. The weights of experts without tokens
    are not read.
    """
    return backend(x).moe_mlp(x, gate_up, down, experts, shares)  # type: ignore[no-any-return]  # same


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Store k[T,Hk,D] and v[T,Hk,Dv] at slots[T] int64, slot = page * page_size + offset."""
    backend(k).write_kv(k, v, k_cache, v_cache, slots)


def qk_norm_rope_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    positions: Tensor,
    cos_sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    offset: float = 0.0,
) -> None:
    """Query and key norm, RoPE and cache write, in one launch.

    q[T,Hq,D] <- rope(rms_norm(q)) in place; the cache rows at slots[T] <- rope(rms_norm(k)) and v,
    both [T,Hk,D]. The norms (weights [D], plus `offset`) are omitted if both weights are None. The
    contents of k are unspecified afterwards. positions, cos_sin, slots as in `rope_` and
    `write_kv`.
    """
    backend(q).qk_norm_rope_write(
        q, k, v, q_weight, k_weight, eps, positions, cos_sin, k_cache, v_cache, slots, offset
    )


def latent_norm_rope_write(
    q: Tensor,
    latent: Tensor,
    weight: Tensor,
    eps: float,
    positions: Tensor,
    cos_sin: Tensor,
    cache: Tensor,
    slots: Tensor,
    *,
    interleaved: bool,
) -> None:
    """Norm, RoPE and cache write of multi-head latent attention, in one launch.

    q[T,Hq,R] <- rope(q) in place; the cache row at slots[T] <- (rms_norm(c) | rope(r)) for
    latent[T,L+R] = (c | r), the norm's weight[L], cache[pages, page_size, 1, L+R]. Pairs are
    (i, i + R/2), or (2i, 2i + 1) if `interleaved`; rotated values keep their places. positions,
    cos_sin and slots as in `rope_` and `write_kv`. DeepSeek-V2 (arXiv:2405.04434, section 2.1).
    """
    backend(q).latent_norm_rope_write(
        q, latent, weight, eps, positions, cos_sin, cache, slots, interleaved=interleaved
    )


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_query_len: int,
    max_seq_len: int,
    window: int | None = None,
    softcap: float | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Causal attention of the last tokens of each sequence over its pages -> [T,Hq,Dv].

    q[T,Hq,D]: the queries of row b are q[query_start[b]:query_start[b+1]]. They are the last of its
    seq_lens[b] tokens, whose keys and values are all in the cache, this step's included. Result
    rows of tokens that belong to no sequence are unspecified.

    k_cache[..,Hk,D], v_cache[..,Hk,Dv]; for a latent cache (Hk = 1) v_cache is k_cache[..., :Dv].
    block_tables[lines,max_pages] int32, with any row stride: the pages of row b are in line
    rows[b], or in line b without `rows` ([B] int32 or int64). Table entries past the sequence, and
    cache values past its end, are never used. seq_lens[B] int32, query_start[B+1] int32.

    A row of length 0 or without queries is padding: nothing of it is read or written. The contents
    of padding never change the result. If max_query_len > 1, the amount of padding does not change
    it either, up to the next power of two of T; decode chooses its splits by B and max_seq_len.

    max_query_len is an upper bound; 1 means decode. max_seq_len is an estimate: results of longer
    sequences are correct, but their work may be divided less evenly. out[T,Hq,Dv], its last two
    dimensions contiguous, is written and returned instead of a new tensor. window: token i sees
    tokens j with i - window < j <= i. softcap: scores become softcap * tanh(scores / softcap).

    PagedAttention: Kwon et al. 2023 (arXiv:2309.06180); softcap: Gemma 2 (arXiv:2408.00118).
    """
    return backend(q).paged_attention(  # type: ignore[no-any-return]  # module chosen by name
        q,
        k_cache,
        v_cache,
        block_tables,
        seq_lens,
        query_start,
        scale=scale,
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
        window=window,
        softcap=softcap,
        rows=rows,
        out=out,
    )


def greedy(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The argmax of each row of logits[B,V], any float dtype -> (tokens, finite, peak).

    tokens[B] int64: the lowest id of the largest logit, 0 if that logit is not finite; finite[B]
    bool: whether it is; peak[B] float32: the largest logit, +inf for a row with a NaN.
    """
    return backend(logits).greedy(logits)  # type: ignore[no-any-return]  # module chosen by name


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    position: Tensor,
    *,
    rows: Tensor | None = None,
    filtered: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one token id per row -> (tokens, finite, peak) as in `greedy`.

    Every device draws the same ids from the same float32 logits; `reference.sampling` says how.
    logits[B,V] any float dtype; temperature[B] float32 (below 1e-5: argmax, lowest id on ties);
    top_k[B] int32 (0 = off); top_p[B] float32 (1 = off); min_p[B] float32 (0 = off); seed[B] and
    position[B] int64, the counter of the random generator. rows[B] int64: the temperature, filters
    and seed of row b are at index rows[b] of their tensors, which may be longer than B. Filters
    apply in the order temperature, top-k, top-p, min-p; tokens tied with the last kept one are
    kept. filtered=False: the caller knows that no row has top-k or top-p, which saves work.
    """
    return backend(logits).sample(  # type: ignore[no-any-return]  # module chosen by name
        logits, temperature, top_k, top_p, min_p, seed, position, rows=rows, filtered=filtered
    )


def score_tokens(
    logits: Tensor, tokens: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Score tokens[B] int64 by the log-softmax, in float32, of logits[B,V] of any float dtype.

    -> log-probability [B] float32; rank [B] int64, 1 + the number of tokens with a larger logit;
    ids [B,count] int64 of the largest logits, best first, the lower id first among equal ones;
    their log-probabilities [B,count]. In a row with a NaN the token's log-probability is NaN.
    """
    return backend(logits).score_tokens(logits, tokens, count)  # type: ignore[no-any-return]  # same


def adjust_logits(
    logits: Tensor,
    slot: Tensor,
    wanted: Tensor,
    masks: Tensor | None,
    seen: Tensor | None,
    penalties: Tensor | None,
) -> Tensor:
    """Mask forbidden tokens, then penalise earlier tokens -> new [B,V] float32.

    logits[B,V] any float dtype; slot[B] int64: each row's line in the tables; wanted[B] int32: bits
    of `logit_flags`. masks[3,slots,ceil(V/32)] int32: bit t % 32 of word t // 32 is set if token t
    is allowed. seen[slots,V] int32: twice the number of times that a token is in the output, plus 1
    if it is in the prompt. penalties[3,slots] float32: repetition, frequency, presence:

        x = (x / repetition if x > 0 else x * repetition) if seen else x
        x = x - frequency * count, and - presence where count > 0

    A table may be None if no row needs it. NaN and +inf stay, so that no mask hides a broken row.
    """
    return backend(logits).adjust_logits(  # type: ignore[no-any-return]  # module chosen by name
        logits, slot, wanted, masks, seen, penalties
    )


def add_biases_(
    logits: Tensor, slot: Tensor, wanted: Tensor, tokens: Tensor, values: Tensor
) -> None:
    """logits[b, tokens[slot[b]]] += values[slot[b]] in rows whose `wanted` has BIASES.

    logits[B,V] float32; tokens[slots,N] int32, distinct, -1 in unused entries; values[slots,N]
    float32.
    """
    backend(logits).add_biases_(logits, slot, wanted, tokens, values)


def ban_words_(
    logits: Tensor, slot: Tensor, position: Tensor, wanted: Tensor, words: Tensor, recent: Tensor
) -> None:
    """Set the logits of tokens that would complete a banned word to -inf.

    Applies to rows whose `wanted` has BAD_WORDS. logits[B,V] float32; position[B] int64: position
    of the token to draw. words[slots,N,32] int32: a word ends in column 31 (-1 there: unused entry)
    and is padded with -1 on the left. recent[slots,32] int32: the output's token at position p is
    in column p % 32; -2 means no token.
    """
    backend(logits).ban_words_(logits, slot, position, wanted, words, recent)


def remember_(
    tokens: Tensor,
    slot: Tensor,
    position: Tensor,
    wanted: Tensor,
    seen: Tensor | None,
    recent: Tensor | None,
) -> None:
    """Record drawn tokens[B] int64 in `seen` and `recent`.

    `seen` changes in rows whose `wanted` has PENALTIES, `recent` in rows with BAD_WORDS. All slots
    are distinct. The other arguments are those of `adjust_logits` and `ban_words_`.
    """
    backend(tokens).remember_(tokens, slot, position, wanted, seen, recent)


def copy_pages(cache: Tensor, source: Tensor, target: Tensor) -> None:
    """cache[target[i]] = cache[source[i]] for int64 page ids [N].

    Targets are distinct, and none of them is a source.
    """
    backend(cache).copy_pages(cache, source, target)


def swap_pages(source_cache: Tensor, target_cache: Tensor, source: Tensor, target: Tensor) -> None:
    """target_cache[target[i]] = source_cache[source[i]] for int64 page ids [N], targets distinct.

    The caches may be on different devices; then the ids are on the CUDA device and the host's cache
    is in pinned memory. Copies run in stream order: synchronise before reading the host's cache.
    """
    backend(source).swap_pages(source_cache, target_cache, source, target)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> Tensor:
    """softmax(scale q k^T) v of dense tensors, differentiable -> [B,Hq,T,D].

    q[B,Hq,T,D], k and v [B,Hk,S,D]. Queries are aligned with the last keys: if `causal`, query i
    sees keys j <= i + S - T, and its result is zero if there are none. FlashAttention-2
    (arXiv:2307.08691) computes the same without storing the scores.
    """
    return backend(q).flash_attention(  # type: ignore[no-any-return]  # found by name
        q, k, v, scale=scale, causal=causal
    )
