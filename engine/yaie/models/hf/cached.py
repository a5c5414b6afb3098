"""A transformers model with transformers' own cache: one sequence at a time, its tokens in order.

For models that paged attention does not support: recurrent ones, and those whose attention adds
biases or reads its mask itself. The scheduler must run one sequence at a time, from position 0 on.
"""

from enum import Enum
from inspect import signature
from typing import Any

import torch

from yaie.layers.attention import StepInput
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import TensorOptions
from yaie.models.hf.backbone_base import HalvedTransformer
from yaie.models.hf.errors import UnfitError

CACHE_NAMES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""Names of the argument and output by which models receive and return their cache."""


class CacheMode(Enum):
    """What a model can process with its cache after the first call, in order of preference."""

    CHUNKS = "any number of tokens"
    TOKENS = "one token at a time"
    NOTHING = "nothing: all tokens are computed again in each step"


class CachedTransformer(HalvedTransformer):
    """Implements `models.model.DecoderModel`, without a cache in our pages.

    Args:
        model: transformers' model, with weights.
        options: its device and dtype.
        carry: how its cache is used.
        told: arguments to pass in each step besides the tokens: position_ids, attention_mask, both
            or none. Some models derive positions from their cache, some from these arguments, and
            some treat a mask as one for this step's tokens only.

    Raises:
        UnfitError: the model has no cache that can be passed back to it.

    """

    caches: tuple[LayerCache, ...] = ()

    def __init__(
        self,
        model: Any,
        options: TensorOptions,
        carry: CacheMode,
        told: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(model, options)
        self.carry = carry
        self._cache_name = _cache_name(model) if carry is not CacheMode.NOTHING else None
        self._names = {"input_ids", "use_cache", self._cache_name, *told}
        self._reset()
        self.halve(**self._arguments(torch.zeros((1, 4), dtype=torch.int64), 0))
        if self._cache_name and self._cache_name not in self._split.takes:
            raise UnfitError("it keeps its cache from its body")

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 of one sequence -> hidden states [T, hidden].

        Raises:
            ValueError: the step has several sequences, or does not continue the last tokens.

        """
        (segment,) = step.segments
        start = segment.max_seq_len - len(ids)
        if start == 0:
            self._reset()
        if start != len(self._ids) or len(segment.seq_lens) != 1:
            raise ValueError(f"{len(self._ids)} tokens are cached; the step starts at {start}")
        if self.carry is CacheMode.TOKENS and start:
            return torch.cat([self._run(token) for token in torch.split(ids, 1)])
        return self._run(ids)

    def _reset(self) -> None:
        self._cache: Any = None
        self._ids = torch.zeros(0, dtype=torch.int64, device=self.options.device)

    def _run(self, ids: torch.Tensor) -> torch.Tensor:
        start, n_tokens = len(self._ids), len(ids)
        self._ids = torch.cat((self._ids, ids))
        if self._cache_name is None:
            start, ids = 0, self._ids
        output = self._split.hidden(**self._arguments(ids.unsqueeze(0), start))
        if self._cache_name is not None:
            self._cache = output[self._cache_name]
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden[-n_tokens:]

    def _arguments(self, ids: torch.Tensor, start: int) -> dict[str, Any]:
        """The arguments of a call, restricted to those that this model accepts."""
        end = start + ids.shape[1]
        ids = ids.to(self.options.device)
        arguments: dict[str, Any] = {
            "input_ids": ids,
            "position_ids": torch.arange(start, end, device=ids.device).unsqueeze(0),
            "attention_mask": torch.ones((1, end), dtype=torch.int64, device=ids.device),
            "use_cache": self._cache_name is not None,
        }
        if self._cache_name is not None:
            arguments[self._cache_name] = self._cache
        takes = signature(self._model.forward).parameters
        return {
            name: value
            for name, value in arguments.items()
            if name in self._names and name in takes
        }


def _cache_name(model: Any) -> str:
    names = signature(model.forward).parameters
    for name in CACHE_NAMES:
        if name in names:
            return name
    raise UnfitError("it takes no cache")
