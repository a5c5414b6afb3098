"""What sampling parameters change in logits before a token is drawn: masks, penalties, biases.

The state lives in tables with a row for each slot. Logits that are NaN or +inf stay as they are,
whatever forbids them: the row is broken, and has to be found out.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import torch
from torch import Tensor

from yaie_kernels.logit_flags import ANY, BAD_WORDS, BIASES, MASKS, PENALTIES, WORD_TOKENS


def adjust_logits(
    logits: Tensor,
    slot: Tensor,
    wanted: Tensor,
    masks: Tensor | None,
    seen: Tensor | None,
    penalties: Tensor | None,
) -> Tensor:
    adjusted = logits.to(torch.float32, copy=True)
    for kind in range(MASKS if masks is not None else 0):
        rows = _rows(wanted, 1 << kind)
        if masks is not None and len(rows):
            forbidden = ~_unpacked(masks[kind][slot[rows]], logits.shape[1])
            adjusted[rows] = _forbid(adjusted[rows], forbidden)
    rows = _rows(wanted, PENALTIES)
    if seen is not None and penalties is not None and len(rows):
        of_row = penalties[:, slot[rows]].unsqueeze(-1)
        adjusted[rows] = _penalised(adjusted[rows], seen[slot[rows]], of_row)
    return adjusted


def _rows(wanted: Tensor, bit: int) -> Tensor:
    return (wanted & bit).nonzero().squeeze(1)


def _unpacked(words: Tensor, vocab: int) -> Tensor:
    """words[R,W] int32 -> [R,vocab] bool: bit t % 32 of word t // 32."""
    bits = torch.arange(32, dtype=torch.int32, device=words.device)
    return ((words.unsqueeze(-1) >> bits) & 1).bool().flatten(1)[:, :vocab]


def _forbid(logits: Tensor, forbidden: Tensor) -> Tensor:
    return logits.masked_fill_(forbidden & (logits < torch.inf), -torch.inf)


def _penalised(logits: Tensor, seen: Tensor, penalties: Tensor) -> Tensor:
    repetition, frequency, presence = penalties
    scaled = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen != 0, scaled, logits)
    count = seen >> 1
    logits = logits - frequency * count  # two roundings, as without fused multiply-add
    return torch.where(count > 0, logits - presence, logits)


def add_biases_(
    logits: Tensor, slot: Tensor, wanted: Tensor, tokens: Tensor, values: Tensor
) -> None:
    rows = _rows(wanted, BIASES)
    ids = tokens[slot[rows]].long()
    line, column = (ids >= 0).nonzero(as_tuple=True)
    logits[rows[line], ids[line, column]] += values[slot[rows]][line, column]


def ban_words_(
    logits: Tensor, slot: Tensor, position: Tensor, wanted: Tensor, words: Tensor, recent: Tensor
) -> None:
    rows = _rows(wanted, BAD_WORDS)
    if not len(rows):
        return
    columns = torch.arange(1, WORD_TOKENS, device=logits.device)  # 31 positions up to the last
    order = (position[rows].unsqueeze(1) + columns) % WORD_TOKENS
    last = recent[slot[rows]].gather(1, order).unsqueeze(1)
    before, final = torch.split(words[slot[rows]], [WORD_TOKENS - 1, 1], dim=-1)
    complete = ((before == ANY) | (before == last)).all(-1) & (final.squeeze(-1) >= 0)
    row, word = complete.nonzero(as_tuple=True)
    token = final[row, word].squeeze(-1).long()
    logits[rows[row], token] = torch.where(
        logits[rows[row], token] < torch.inf, -torch.inf, logits[rows[row], token]
    )


def remember_(
    tokens: Tensor,
    slot: Tensor,
    position: Tensor,
    wanted: Tensor,
    seen: Tensor | None,
    recent: Tensor | None,
) -> None:
    if seen is not None:
        rows = _rows(wanted, PENALTIES)
        seen[slot[rows], tokens[rows]] += 2
    if recent is not None:
        rows = _rows(wanted, BAD_WORDS)
        recent[slot[rows], position[rows] % WORD_TOKENS] = tokens[rows].int()
