"""Philox4x32-10, the counter-based generator behind sampling, in int64 torch arithmetic.

The counter is (seed low, seed high, position low, position high) and the key is fixed, so a draw
depends on nothing but the request's seed and the position of the token. The Triton sampler
computes the same words.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
KEY = (0x79616965, 0x73616D70)
ROUNDS = 10
MASK = 0xFFFFFFFF


def philox(seed: Tensor, position: Tensor, key: tuple[int, int] = KEY) -> Tensor:
    """seed[B] int64, position[B] int64 -> [4, B] int64, four words in [0, 2**32)."""
    low = torch.stack((seed, position))  # words 0 and 2 of the counter
    high = (low >> 32).bitwise_and_(MASK)  # words 1 and 3
    low = low & MASK
    factors = torch.tensor(MULTIPLIERS, device=seed.device).unsqueeze(1)
    keys = round_keys(key, seed.device)
    for step in range(ROUNDS):
        product = low * factors  # wraps; the 64 bits are those of the unsigned product
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


def scaled(words: Tensor, total: Tensor) -> Tensor:
    """floor(r * total / 2**62) for a 62-bit r made of two words; 0 < total < 2**58.

    words[4, B] from `philox`, total[B] int64 -> [B] int64 in [0, total).
    """
    r1, r0 = words[0] >> 1, words[1] >> 1
    t1, t0 = total >> 31, total & 0x7FFFFFFF
    middle = r1 * t0 + r0 * t1 + ((r0 * t0) >> 31)
    return r1 * t1 + (middle >> 31)
