"""Masks, penalties, biases and banned words of `reference.sampling`: at most one launch each.

Masks and penalties, which touch the whole vocabulary, share one kernel, which also converts logits
to float32. It is compiled without fused multiply-add, so results equal the reference's bit for bit.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels import logit_flags

_CHUNK = 4096
_WORD_BLOCK = 16
_MASKS = tl.constexpr(logit_flags.MASKS)
_PENALTIES = tl.constexpr(logit_flags.PENALTIES)
_BIASES = tl.constexpr(logit_flags.BIASES)
_WORDS = tl.constexpr(logit_flags.BAD_WORDS)
_WORD_TOKENS = tl.constexpr(logit_flags.WORD_TOKENS)
_ANY = tl.constexpr(logit_flags.ANY)


@triton.jit
def _penalised(x, seen, repetition, frequency, presence):
    """Apply the penalties; seen = 2 * (times in the output) + (1 if in the prompt)."""
    scaled = tl.where(x > 0, tl.div_rn(x, tl.zeros_like(x) + repetition), x * repetition)
    x = tl.where(seen != 0, scaled, x)
    count = seen >> 1
    x = x - frequency * count.to(tl.float32)
    return tl.where(count > 0, x - presence, x)


@triton.jit
def _adjust_kernel(
    logits_ptr, slot_ptr, wanted_ptr, masks_ptr, seen_ptr, penalties_ptr, adjusted_ptr,
    vocab, row_stride, slots, mask_words,
    HAS_MASKS: tl.constexpr, HAS_SEEN: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Adjust a chunk of a row: forbidden tokens become -inf, earlier tokens are penalised."""
    row = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = token < vocab
    x = tl.load(logits_ptr + row * row_stride + token, mask=inside, other=0.0).to(tl.float32)
    wanted = tl.load(wanted_ptr + row)
    slot = tl.load(slot_ptr + row).to(tl.int64)
    if HAS_MASKS:
        for kind in tl.static_range(_MASKS):
            if (wanted >> kind) & 1:
                base = masks_ptr + (kind * slots + slot) * mask_words
                word = tl.load(base + token // 32, mask=inside, other=0)
                forbidden = ((word >> (token % 32)) & 1) == 0
                x = tl.where(forbidden & (x < float("inf")), float("-inf"), x)
    if HAS_SEEN:  # noqa: SIM102 - decided when compiled; what follows, when run
        if wanted & _PENALTIES:
            seen = tl.load(seen_ptr + slot * vocab + token, mask=inside, other=0)
            repetition = tl.load(penalties_ptr + slot)
            frequency = tl.load(penalties_ptr + slots + slot)
            presence = tl.load(penalties_ptr + 2 * slots + slot)
            x = _penalised(x, seen, repetition, frequency, presence)
    tl.store(adjusted_ptr + row * vocab + token, x, mask=inside)


@triton.jit
def _bias_kernel(
    logits_ptr, slot_ptr, wanted_ptr, tokens_ptr, values_ptr, row_stride, width, BLOCK: tl.constexpr
):  # fmt: skip
    """logits[row, tokens[slot]] += values[slot]; a slot's tokens are distinct."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(wanted_ptr + row) & _BIASES:
        lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        entry = tl.load(slot_ptr + row).to(tl.int64) * width + lane
        token = tl.load(tokens_ptr + entry, mask=lane < width, other=-1)
        used = token >= 0
        at = logits_ptr + row * row_stride + token
        x = tl.load(at, mask=used, other=0.0)
        tl.store(at, x + tl.load(values_ptr + entry, mask=used, other=0.0), mask=used)


@triton.jit
def _ban_kernel(
    logits_ptr, slot_ptr, position_ptr, wanted_ptr, words_ptr, recent_ptr,
    row_stride, count, BLOCK: tl.constexpr,
):  # fmt: skip
    """Set the last token of each banned word to -inf if the slot's last tokens are the others."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(wanted_ptr + row) & _WORDS:
        slot = tl.load(slot_ptr + row).to(tl.int64)
        word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        column = tl.arange(0, _WORD_TOKENS)
        order = (tl.load(position_ptr + row) + 1 + column) % _WORD_TOKENS
        last = tl.load(recent_ptr + slot * _WORD_TOKENS + order)
        entry = (slot * count + word)[:, None] * _WORD_TOKENS + column[None, :]
        pattern = tl.load(words_ptr + entry, mask=(word < count)[:, None], other=_ANY)
        final = column[None, :] == _WORD_TOKENS - 1
        fits = (pattern == _ANY) | (pattern == last[None, :]) | final
        complete = tl.min(fits.to(tl.int32), axis=1) == 1
        token = tl.sum(tl.where(final, pattern, 0), axis=1)
        banned = complete & (token >= 0)
        at = logits_ptr + row * row_stride + token
        x = tl.load(at, mask=banned, other=float("inf"))
        lowest = tl.full([BLOCK], float("-inf"), tl.float32)
        tl.store(at, lowest, mask=banned & (x < float("inf")))


@triton.jit
def _remember_kernel(
    tokens_ptr, slot_ptr, position_ptr, wanted_ptr, seen_ptr, recent_ptr, vocab,
    HAS_SEEN: tl.constexpr, HAS_RECENT: tl.constexpr,
):  # fmt: skip
    """seen[slot, token] += 2; recent[slot, position % 32] = token. Rows' slots are distinct."""
    row = tl.program_id(0)
    wanted = tl.load(wanted_ptr + row)
    slot = tl.load(slot_ptr + row).to(tl.int64)
    token = tl.load(tokens_ptr + row)
    if HAS_SEEN:  # noqa: SIM102 - decided when compiled; what follows, when run
        if wanted & _PENALTIES:
            at = seen_ptr + slot * vocab + token
            tl.store(at, tl.load(at) + 2)
    if HAS_RECENT:  # noqa: SIM102 - same
        if wanted & _WORDS:
            place = tl.load(position_ptr + row) % _WORD_TOKENS
            tl.store(recent_ptr + slot * _WORD_TOKENS + place, token.to(tl.int32))


def adjust_logits(
    logits: Tensor,
    slot: Tensor,
    wanted: Tensor,
    masks: Tensor | None,
    seen: Tensor | None,
    penalties: Tensor | None,
) -> Tensor:
    rows, vocab = logits.shape
    adjusted = torch.empty((rows, vocab), dtype=torch.float32, device=logits.device)
    if rows == 0:
        return adjusted
    table = masks if masks is not None else seen
    chunk = min(_CHUNK, triton.next_power_of_2(vocab))
    _adjust_kernel[(triton.cdiv(vocab, chunk), rows)](
        logits, slot, wanted, masks, seen, penalties, adjusted,
        vocab, logits.stride(0),
        0 if table is None else table.shape[-2],
        0 if masks is None else masks.shape[-1],
        HAS_MASKS=masks is not None, HAS_SEEN=seen is not None, CHUNK=chunk,
        num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    return adjusted


def add_biases_(
    logits: Tensor, slot: Tensor, wanted: Tensor, tokens: Tensor, values: Tensor
) -> None:
    rows, width = logits.shape[0], tokens.shape[1]
    if rows == 0:
        return
    block = min(256, triton.next_power_of_2(width))
    _bias_kernel[(rows, triton.cdiv(width, block))](
        logits, slot, wanted, tokens, values, logits.stride(0), width, BLOCK=block
    )


def ban_words_(
    logits: Tensor, slot: Tensor, position: Tensor, wanted: Tensor, words: Tensor, recent: Tensor
) -> None:
    rows, count = logits.shape[0], words.shape[1]
    if rows == 0:
        return
    _ban_kernel[(rows, triton.cdiv(count, _WORD_BLOCK))](
        logits, slot, position, wanted, words, recent, logits.stride(0), count, BLOCK=_WORD_BLOCK
    )


def remember_(
    tokens: Tensor,
    slot: Tensor,
    position: Tensor,
    wanted: Tensor,
    seen: Tensor | None,
    recent: Tensor | None,
) -> None:
    if len(tokens) == 0:
        return
    _remember_kernel[(len(tokens),)](
        tokens, slot, position, wanted, seen, recent, 0 if seen is None else seen.shape[1],
        HAS_SEEN=seen is not None, HAS_RECENT=recent is not None, num_warps=1,
    )  # fmt: skip
