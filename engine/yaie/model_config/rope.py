"""Reads rotary embedding settings of config.json: `rope_parameters` (new), or `rope_scaling` and
`rope_theta` (old). `layers.rotary` defines what each kind computes and cites its source.
"""

from typing import Literal, get_args

import msgspec

from yaie.model_config.fields import (
    Raw,
    flag,
    malformed,
    number,
    numbers,
    optional_number,
    positive,
    require,
    unsupported,
)

RopeKind = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"]
ROPE_KINDS: tuple[RopeKind, ...] = get_args(RopeKind)
_OWN_LENGTH = ("yarn", "longrope", "llama3")
"""Kinds with a setting for the length of the original training."""


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary embedding parameters; each kind reads the fields that it needs.

    `partial_rotary_factor`: share of a head that is rotated. `max_positions`: the config's longest
    sequence (dynamic). `original_max_positions`: longest sequence of the original training (yarn,
    longrope, llama3). `short_factor`, `long_factor`: one number per pair of rotated dimensions
    (longrope).
    """

    kind: RopeKind = "default"
    theta: float = 10_000.0
    partial_rotary_factor: float = 1.0
    factor: float = 1.0
    max_positions: int = 0
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def rotary_dim(self, head_dim: int) -> int:
        """Number of rotated dimensions of a head (all for proportional, some of them by 0)."""
        if self.kind == "proportional":
            return head_dim
        return int(head_dim * self.partial_rotary_factor)

    @property
    def longest_exact(self) -> int | None:
        """Longest sequence up to which the frequencies do not depend on its length; None: no limit.

        A sequence that grows beyond it would need all its keys computed again. transformers keeps
        the cached keys, so its logits differ from those of one pass over the whole sequence.
        """
        return {"dynamic": self.max_positions, "longrope": self.original_max_positions}.get(
            self.kind
        )


def read_rope(
    raw: Raw, *, head_dim: int, max_positions: int, theta: float = 10_000.0
) -> RopeConfig:
    """Read the settings of a model with a single table. `theta`: the family's default base."""
    table = rope_table(raw)
    if (partial := raw.get("partial_rotary_factor")) is not None:
        table = {"partial_rotary_factor": partial} | table
    if (original := raw.get("original_max_position_embeddings")) is not None:
        table = table | {"original_max_position_embeddings": original}
    theta = number(raw, "rope_theta", theta)
    return read_table(table, head_dim=head_dim, max_positions=max_positions, theta=theta)


def rope_table(raw: Raw) -> Raw:
    """Return a config's table under its new or old name; empty if there is none."""
    table = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(table, dict):
        raise malformed("rope_parameters", table)
    return table


def read_table(table: Raw, *, head_dim: int, max_positions: int, theta: float) -> RopeConfig:
    """Read one table, which must not contain tables by layer type."""
    require(not any(isinstance(value, dict) for value in table.values()), "rope_parameters", table)
    kind = _kind(table)
    require("mrope_section" not in table, "mrope_section", table.get("mrope_section"))
    original = positive(table, "original_max_position_embeddings", default=max_positions)
    rope = RopeConfig(
        kind=kind,
        theta=number(table, "rope_theta", theta),
        partial_rotary_factor=number(table, "partial_rotary_factor", 1.0),
        factor=_factor(table, kind, max_positions / original),
        max_positions=max_positions,
        original_max_positions=original if kind in _OWN_LENGTH else 0,
        low_freq_factor=number(table, "low_freq_factor", 1.0),
        high_freq_factor=number(table, "high_freq_factor", 4.0),
        beta_fast=number(table, "beta_fast", 32.0) or 32.0,
        beta_slow=number(table, "beta_slow", 1.0) or 1.0,
        attention_factor=optional_number(table, "attention_factor"),
        mscale=optional_number(table, "mscale"),
        mscale_all_dim=optional_number(table, "mscale_all_dim"),
        truncate=flag(table, "truncate", default=True),
    )
    if kind == "longrope":
        rope = _with_factors(rope, table, rope.rotary_dim(head_dim) // 2)
    _require_sane(rope, head_dim)
    return rope


def _kind(table: Raw) -> RopeKind:
    name = table.get("rope_type", table.get("type", "default"))
    for kind in ROPE_KINDS:
        if name == kind:
            return kind
    raise unsupported("rope_type", name)


def _factor(table: Raw, kind: str, ratio: float) -> float:
    """Read `factor`; if it is absent, some kinds use `ratio`, that of the lengths."""
    if kind in {"linear", "dynamic", "llama3"}:
        return number(table, "factor")
    return number(table, "factor", 1.0 if kind in {"default", "proportional"} else ratio)


def _with_factors(rope: RopeConfig, table: Raw, pairs: int) -> RopeConfig:
    return msgspec.structs.replace(
        rope,
        short_factor=numbers(table, "short_factor", pairs),
        long_factor=numbers(table, "long_factor", pairs),
    )


def _require_sane(rope: RopeConfig, head_dim: int) -> None:
    """Refuse values that would cause a division by zero or an undefined logarithm."""
    rotated = rope.rotary_dim(head_dim)
    whole = 0 < rotated <= head_dim and rotated % 2 == 0
    require(whole, "partial_rotary_factor", rope.partial_rotary_factor)
    require(rope.theta > 1, "rope_theta", rope.theta)
    require(rope.factor > 0, "factor", rope.factor)
    require(rope.high_freq_factor > rope.low_freq_factor > 0, "low_freq_factor", rope)
    require(rope.beta_fast > 0 and rope.beta_slow > 0, "beta_fast", rope)
    require(rope.original_max_positions != 1, "original_max_position_embeddings", 1)
    require(min((1.0, *rope.short_factor)) > 0, "short_factor", rope.short_factor)
    require(min((1.0, *rope.long_factor)) > 0, "long_factor", rope.long_factor)
