"""Rotary position embedding (RoPE, Su et al. 2021, arXiv:2104.09864): the table of angles for every
scaling kind of `RopeConfig`.

Angles are computed in float32, exactly as in the checkpoints' reference code: a float64 table would
differ from the one used in training.
"""

import math
from collections.abc import Callable

import msgspec
import torch

from yaie.model_config.rope import RopeConfig

Frequencies = tuple[torch.Tensor, float]
"""(inverse frequencies [rotary_dim / 2] float32, factor of cos and sin)."""


def angle_table(rope: RopeConfig, head_dim: int, max_positions: int) -> torch.Tensor:
    """The table [max_positions, rotary_dim] float32: (cos | sin) of each position.

    Dynamic scaling has no effect up to the config's longest sequence. longrope has factors for
    short and for long sequences; a table for long sequences uses the long factors in all rows.
    """
    if rope.kind == "longrope" and max_positions > rope.original_max_positions:
        rope = msgspec.structs.replace(rope, short_factor=rope.long_factor)
    inverse, factor = _FREQUENCIES[rope.kind](rope, rope.rotary_dim(head_dim))
    positions = torch.arange(max_positions, dtype=torch.float32)
    angles = positions[:, None] * inverse
    return torch.cat((angles.cos() * factor, angles.sin() * factor), dim=-1)


def _powers(rope: RopeConfig, dim: int) -> torch.Tensor:
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    powers: torch.Tensor = rope.theta**exponents
    return powers


def _default(rope: RopeConfig, dim: int) -> Frequencies:
    return 1.0 / _powers(rope, dim), 1.0


def _linear(rope: RopeConfig, dim: int) -> Frequencies:
    """Position interpolation (Chen et al. 2023, arXiv:2306.15595)."""
    return 1.0 / _powers(rope, dim) / rope.factor, 1.0


def _proportional(rope: RopeConfig, dim: int) -> Frequencies:
    """The first pairs have the frequencies of a full rotation, the others frequency 0
    (transformers' kind `proportional`).
    """
    inverse = 1.0 / _powers(rope, dim) / rope.factor
    inverse[int(rope.partial_rotary_factor * dim // 2) :] = 0.0
    return inverse, 1.0


def _llama3(rope: RopeConfig, dim: int) -> Frequencies:
    """Frequencies of long wavelengths are divided by `factor`, those of short ones kept, and those
    between are blended (Llama 3.1's reference code).
    """
    inverse = 1.0 / _powers(rope, dim)
    wavelength = 2 * math.pi / inverse
    low, high = rope.low_freq_factor, rope.high_freq_factor
    longest = rope.original_max_positions / low
    shortest = rope.original_max_positions / high
    scaled = torch.where(wavelength > longest, inverse / rope.factor, inverse)
    smooth = (rope.original_max_positions / wavelength - low) / (high - low)
    blended = (1 - smooth) * scaled / rope.factor + smooth * scaled
    between = (wavelength >= shortest) & (wavelength <= longest)
    return torch.where(between, blended, scaled), 1.0


def _longrope(rope: RopeConfig, dim: int) -> Frequencies:
    """Each pair of dimensions has its own divisor (LongRoPE, Ding et al. 2024, arXiv:2402.13753).

    The factor of cos and sin is that of the paper, sqrt(1 + ln(factor) / ln(original length)).
    """
    slower = torch.tensor(rope.short_factor, dtype=torch.float32)
    return 1.0 / (slower * _powers(rope, dim)), _longrope_attention_factor(rope)


def _longrope_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1.0:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_positions))


def _yarn(rope: RopeConfig, dim: int) -> Frequencies:
    """Interpolate low frequencies by `factor`, keep high ones, with a ramp between them (YaRN, Peng
    et al. 2023, arXiv:2309.00071).
    """
    powers = _powers(rope, dim)
    low, high = _yarn_range(rope, dim)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)
    kept = 1 - ramp.clamp(0, 1)
    inverse = (1.0 / (rope.factor * powers)) * (1 - kept) + (1.0 / powers) * kept
    return inverse, _yarn_attention_factor(rope)


def _yarn_range(rope: RopeConfig, dim: int) -> tuple[float, float]:
    def dimension(rotations: float) -> float:
        wavelength = rope.original_max_positions / (rotations * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return low, high + 0.001 if low == high else high


def _yarn_attention_factor(rope: RopeConfig) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


_FREQUENCIES: dict[str, Callable[[RopeConfig, int], Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "longrope": _longrope,
    "proportional": _proportional,
    "yarn": _yarn,
}
