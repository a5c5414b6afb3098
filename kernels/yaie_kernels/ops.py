"""The operations of the engine, with their shapes; `registry` picks who computes them.

T tokens of a step, B sequences, H hidden size, Hq query heads, Hk KV heads (Hq = G * Hk),
D head_dim, V vocabulary, E experts, I size inside an MLP. Caches are contiguous
[pages, page_size, Hk, D]. Row strides of activations may be larger than the row (views of a fused
projection); the last dimension is contiguous. Nothing here synchronises with the device, and grids
depend on shapes and host integers only, so every operation can be captured in a CUDA graph.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

from typing import Literal

from torch import Tensor

from yaie_kernels.registry import backend

Gate = Literal["silu", "gelu_tanh"]
"""What the first half of a gated projection goes through before it multiplies the second."""


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """Norm x / sqrt(mean(x**2) + eps) * (weight + offset) of the last dimension.

    x[T,H] or x[T,heads,D], weight[H] or [D] -> new contiguous tensor of x's shape and dtype.
    All in float32, the offset's sum too; rounded once.
    """
    return backend(x).rms_norm(x, weight, eps, offset)  # type: ignore[no-any-return]  # found by name


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(rms_norm(x + residual), x + residual); x, residual [T,H]; the sum is rounded first."""
    return backend(x).add_rms_norm(x, residual, weight, eps, offset)  # type: ignore[no-any-return]  # same


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, gate: Gate | None = None
) -> Tensor:
    """x[T,K] @ weight[N,K]^T + bias[N] -> [T,N]; with a gate (see `silu_mul`) -> [T,N/2].

    The weight and the bias are constants: nothing that is still running may write them, as they
    may be read ahead of what precedes the call.
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
    """(linear(rms_norm(total)), total) with total = x + residual, or x where that is None.

    x, residual [T,K]; norm_weight[K], eps and offset as in `rms_norm`, the rest as in `linear`.
    """
    return backend(x).norm_linear(  # type: ignore[no-any-return]  # module chosen by name
        x, residual, norm_weight, eps, offset, weight, bias, gate=gate
    )


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotate the first R dimensions of q[T,Hq,D] and k[T,Hk,D] in place.

    Pairs are (i, i + R/2), as in GPT-NeoX. positions[T] int64 index cos_sin[max_positions, R]
    float32 = (cos[R/2] | sin[R/2]), R <= D; dimensions from R on stay.
    """
    backend(q).rope_(q, k, positions, cos_sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for gate_up[T,2I] = (gate | up) -> [T,I]."""
    return backend(gate_up).silu_mul(gate_up)  # type: ignore[no-any-return]  # found by name


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    """gelu(gate) * up in gelu's tanh approximation; shapes as in `silu_mul`."""
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

    logits[T,E] any float dtype; a score is their sigmoid, or softmax over all experts. Experts are
    ranked by score + bias[E] float32, among those of the `kept_groups` best of `groups` equal
    groups; a group ranks by the sum of its `group_best` best. A share is the score (no bias),
    divided by the sum of the K shares if `normalize`, times `scale`. Everything is float32.
    (Softmax: Mixtral, Qwen; groups by their best: DeepSeek-V2; sigmoid, bias and groups by their
    two best: DeepSeek-V3.)
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
    ids of a token's experts, distinct; shares[T,K] float32. An expert's weights are read only if it
    has tokens, and once for all of them.
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
    """What lies between the fused projection and attention, in one launch.

    q[T,Hq,D] <- rope(rms_norm(q)) in place; the cache rows at slots[T] <- rope(rms_norm(k)) and v,
    both [T,Hk,D]. The norms (weights [D], plus `offset`) are left out where both weights are None.
    What k holds afterwards is unspecified. positions, cos_sin, slots as in `rope_` and `write_kv`.
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
    """What lies between latent attention's projections and its cache, in one launch.

    q[T,Hq,R] <- rope(q) in place; the cache row at slots[T] <- (rms_norm(c) | rope(r)) for
    latent[T,L+R] = (c | r), the norm's weight[L], cache[pages, page_size, 1, L+R]. Pairs are
    (i, i + R/2), or (2i, 2i + 1) if `interleaved`; they stay where they are. positions, cos_sin
    and slots as in `rope_` and `write_kv`.
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

    q[T,Hq,D]: the queries of row b are q[query_start[b]:query_start[b+1]] and sit at the end of
    its seq_lens[b] tokens, whose keys and values are already in the cache (this step's too).
    Rows of q that no sequence names have no meaning in the result.
    k_cache[..,Hk,D], v_cache[..,Hk,Dv]; for a latent cache (Hk = 1) v_cache is k_cache[..., :Dv].
    block_tables[lines,max_pages] int32 (row stride free): row b's is line rows[b], or line b
    without rows[B] int32 or int64. seq_lens[B] int32, query_start[B+1] int32; a row of length 0 or
    without queries is padding: nothing of it is read or written. max_query_len is an
    upper bound known to the host; 1 means decode. max_seq_len is one, or a guess: longer sequences
    are right, too, but their work may be divided less well.
    Nothing that padding holds changes a bit of the answer. In longer steps its amount does not
    either, up to the next power of two of T; a decode chooses its splits by B and max_seq_len.
    out[T,Hq,Dv]: written and returned instead of a new tensor; its last two dimensions are dense.
    window: token i sees j with i - window < j <= i. softcap: scores become
    softcap * tanh(scores / softcap). Entries of a table past the sequence, and cache values past
    its end, are never used.
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

    tokens[B] int64: the lowest id of the largest logit; finite[B] bool: whether that logit is;
    where it is not, the token is 0. peak[B] float32: the logit, +inf for a row with a NaN.
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
    """One token id per row -> (tokens, finite, peak) as of `greedy`.

    Every device draws the same ids from the same float32 logits.
    logits[B,V] any float dtype; temperature[B] float32 (below 1e-5: argmax, lowest id on ties);
    top_k[B] int32 (0 = off); top_p[B] float32 (1 = off); min_p[B] float32 (0 = off); seed[B] and
    position[B] int64: the draw is a function of these two and the row's logits alone.
    rows[B] int64: row b's temperature, filters and seed are those at rows[b] of longer tensors.
    Filters apply in the order temperature, top-k, top-p, min-p; tokens tied with the last kept
    one are kept. filtered=False: the host knows that no row has top-k or top-p, which spares work.
    """
    return backend(logits).sample(  # type: ignore[no-any-return]  # module chosen by name
        logits, temperature, top_k, top_p, min_p, seed, position, rows=rows, filtered=filtered
    )


def score_tokens(
    logits: Tensor, tokens: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Score tokens[B] int64 by the log-softmax, in float32, of logits[B,V] of any float dtype.

    -> log-probability [B] float32; rank [B] int64, 1 plus the tokens with a larger logit; ids
    [B,count] int64 of the largest logits, best first, the lower id first among equal ones; their
    log-probabilities [B,count]. A row with NaN has NaN for its token's.
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
    """Forbid tokens, then penalise those of the past -> new [B,V] float32.

    logits[B,V] any float dtype; slot[B] int64 names each row's line in the tables, wanted[B] int32
    holds bits of `logit_flags`. masks[3,slots,ceil(V/32)] int32: bit t % 32 of word t // 32 is set
    where token t is allowed. seen[slots,V] int32: twice the times that a token is in the output,
    plus 1 if it is in the prompt. penalties[3,slots] float32: repetition, frequency, presence:

        x = (x / repetition if x > 0 else x * repetition) if seen else x
        x = x - frequency * count, and - presence where count > 0

    A table may be None where no row wants it. NaN and +inf stay: no mask hides a broken row.
    """
    return backend(logits).adjust_logits(  # type: ignore[no-any-return]  # module chosen by name
        logits, slot, wanted, masks, seen, penalties
    )


def add_biases_(
    logits: Tensor, slot: Tensor, wanted: Tensor, tokens: Tensor, values: Tensor
) -> None:
    """logits[b, tokens[slot[b]]] += values[slot[b]] in rows that want BIASES.

    logits[B,V] float32; tokens[slots,N] int32, -1 where unused, each token once; values[slots,N].
    """
    backend(logits).add_biases_(logits, slot, wanted, tokens, values)


def ban_words_(
    logits: Tensor, slot: Tensor, position: Tensor, wanted: Tensor, words: Tensor, recent: Tensor
) -> None:
    """-inf for every token that would complete a banned word, in rows that want WORDS.

    logits[B,V] float32; position[B] int64: of the token to draw; words[slots,N,32] int32: a word
    ends in column 31 (-1: unused entry) and is filled with -1 on the left. recent[slots,32] int32:
    the output's token at position p stands in column p % 32, -2 where there is none.
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
    """Note drawn tokens[B] int64 in `seen` (rows that want PENALTIES) and `recent` (WORDS).

    No slot has two rows. The other arguments are those of `adjust_logits` and `ban_words_`.
    """
    backend(tokens).remember_(tokens, slot, position, wanted, seen, recent)


def copy_pages(cache: Tensor, source: Tensor, target: Tensor) -> None:
    """cache[target[i]] = cache[source[i]] for int64 page ids [N]; targets are distinct and
    none of them is a source.
    """
    backend(cache).copy_pages(cache, source, target)


def swap_pages(source_cache: Tensor, target_cache: Tensor, source: Tensor, target: Tensor) -> None:
    """target_cache[target[i]] = source_cache[source[i]] for int64 page ids [N], targets distinct.

    The caches may lie on different devices: the ids are on the CUDA one, host memory is pinned.
    In stream order; read the host's side only after a synchronisation.
    """
    backend(source).swap_pages(source_cache, target_cache, source, target)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> Tensor:
    """softmax(scale q k^T) v of dense tensors, differentiable -> [B,Hq,T,D].

    q[B,Hq,T,D], k and v [B,Hk,S,D]. The queries stand at the end of the keys: causal query i sees
    keys j <= i + S - T, and is zero where it sees none.
    """
    return backend(q).flash_attention(  # type: ignore[no-any-return]  # found by name
        q, k, v, scale=scale, causal=causal
    )
