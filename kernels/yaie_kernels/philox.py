"""Philox4x32-10, the counter-based random generator of sampling, in int64 PyTorch arithmetic.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". The counter is (seed low, seed
high, position low, position high) and the key is fixed, so a draw depends only on the request's
seed and the token's position. The Triton sampler computes the same words.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
KEY = (0x79616965, 0x73616D70)
ROUNDS = 10
_FEW_ROWS = 16  # above about this many rows, tensor operations are faster
MASK = 0xFFFFFFFF


def philox_words(seed: int, position: int, key: tuple[int, int] = KEY) -> tuple[int, int, int, int]:
    """One draw in Python integers, which is cheaper than tensor operations for a few rows."""
    c0, c1 = seed & MASK, (seed >> 32) & MASK
    c2, c3 = position & MASK, (position >> 32) & MASK
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    return c0, c1, c2, c3


def philox(seed: Tensor, position: Tensor, key: tuple[int, int] = KEY) -> Tensor:
    """seed[B] int64, position[B] int64 -> [4, B] int64, four words in [0, 2**32)."""
    low = torch.stack((seed, position))  # words 0 and 2 of the counter
    high = (low >> 32).bitwise_and_(MASK)  # words 1 and 3
    low = low & MASK
    factors = torch.tensor(MULTIPLIERS, device=seed.device).unsqueeze(1)
    keys = round_keys(key, seed.device)
    for step in range(ROUNDS):
        product = low * factors  # wraps around; the 64 bits equal those of the unsigned product
        top = (product >> 32).bitwise_and_(MASK).flip(0)
        low = top.bitwise_xor_(high).bitwise_xor_(keys[step])
        high = product.bitwise_and_(MASK).flip(0)
    return torch.stack((low[0], high[0], low[1], high[1]))


def round_keys(key: tuple[int, int], device: torch.device) -> Tensor:
    """[ROUNDS, 2, 1] int64: the key of each round for words 0 and 2."""
    return torch.tensor(
        [
            [[(k + r * s) & MASK] for k, s in zip(key, KEY_STEPS, strict=True)]
            for r in range(ROUNDS)
        ],
        device=device,
    )


def targets(seed: Tensor, position: Tensor, total: Tensor) -> Tensor:
    """floor(r * total / 2**62) for each row's 62-bit draw r: [B] int64 in [0, total).

    seed, position, total [B] int64, 0 < total < 2**58.
    """
    if seed.is_cuda or len(seed) > _FEW_ROWS:
        return scaled(philox(seed, position), total)
    found = []
    for row, most in enumerate(total.tolist()):
        words = philox_words(int(seed[row]), int(position[row]))
        draw = ((words[0] >> 1) << 31) | (words[1] >> 1)
        found.append(draw * most >> 62)
    return torch.tensor(found)


def scaled(words: Tensor, total: Tensor) -> Tensor:
    """floor(r * total / 2**62) for a 62-bit r made of two words; 0 < total < 2**58.

    words[4, B] from `philox`, total[B] int64 -> [B] int64 in [0, total).
    """
    r1, r0 = words[0] >> 1, words[1] >> 1
    t1, t0 = total >> 31, total & 0x7FFFFFFF
    middle = r1 * t0 + r0 * t1 + ((r0 * t0) >> 31)
    return r1 * t1 + (middle >> 31)
