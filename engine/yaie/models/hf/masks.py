"""Determines what a mask function of transformers lets a token see, by evaluating it for positions
up to the longest sequence: a window of 4,096 tokens or chunks of 8,192 would not be noticed in a
comparison of short sequences.

A mask function takes broadcastable index tensors (batch, head, query, key) and returns a bool
tensor: whether the query sees the key.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from yaie.models.hf.errors import UnfitError

MaskFunction = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor | bool
]
BEYOND = 3
"""Number of keys after the query that are also evaluated; none of them may be visible."""


@dataclass(frozen=True, slots=True)
class Visible:
    """Every token sees the last `window` tokens, itself included; None: all up to itself."""

    window: int | None


def visible(function: MaskFunction, longest: int) -> Visible:
    """Determine what `function` makes visible in sequences of up to `longest` tokens.

    Raises:
        UnfitError: it is neither causal attention nor a sliding window.

    """
    window = _width(function, longest - 1)
    near = {0, 1, window - 1, window, window + 1, 2 * window, longest // 2, longest - 2}
    for query in sorted(near):
        if 0 <= query < longest and _width(function, query) != min(window, query + 1):
            raise UnfitError("its mask is neither causal nor a sliding window")
    return Visible(None if window >= longest else window)


def _width(function: MaskFunction, query: int) -> int:
    """Number of keys that `query` sees, which must be the last ones up to itself."""
    keys = torch.arange(query + 1 + BEYOND)
    zero = torch.zeros(1, dtype=torch.int64)
    seen = torch.as_tensor(function(zero, zero, torch.tensor([query]), keys)).expand(keys.shape)
    width = int(seen.sum())
    if width == 0 or not bool(seen[query + 1 - width : query + 1].all()):
        raise UnfitError("its mask is neither causal nor a sliding window")
    return width
