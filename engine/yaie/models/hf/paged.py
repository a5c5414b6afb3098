"""A transformers model with keys and values in our pages. All sequences of a step run as one row of
tokens [1, T], because only attention mixes tokens, and attention is ours.
"""

from typing import Any

import torch

from yaie.layers.attention import StepInput
from yaie.layers.options import TensorOptions
from yaie.models.hf.attention import PAGED, PROBE, LayerProbe, PagedStep, answering, select
from yaie.models.hf.backbone_base import HalvedTransformer
from yaie.models.hf.errors import UnfitError

ROTARY_BY_LENGTH = frozenset({"dynamic", "longrope"})
"""Kinds of rotary embedding whose angles depend on the longest sequence of the batch."""


class PagedTransformer(HalvedTransformer):
    """Implements `models.model.DecoderModel`.

    Args:
        model: transformers' model, with weights. Its attention is replaced by ours.
        options: its device and dtype.
        max_model_len: longest sequence in tokens.

    Raises:
        UnfitError: the model needs something that paged attention does not support.

    """

    def __init__(self, model: Any, options: TensorOptions, max_model_len: int) -> None:
        super().__init__(model, options)
        _refuse_by_config(model, max_model_len)
        probe = LayerProbe(max_model_len)
        ids = torch.arange(4, device=options.device).unsqueeze(0)
        select(model, PROBE)
        with answering(probe):
            self.halve(input_ids=ids, position_ids=ids, use_cache=False)
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        if len(probe.layers) != layers:
            raise UnfitError(f"{len(probe.layers)} of its {layers} layers attend the common way")
        if "position_ids" not in self._split.takes:
            raise UnfitError("it cannot be told positions")
        self._layers = tuple(probe.layers)
        self.caches = tuple(layer.cache for layer in probe.layers)
        select(model, PAGED)

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 -> hidden states [T, hidden] after the final norm."""
        answer = PagedStep(self._layers, step)
        with answering(answer):
            output = self._split.hidden(
                input_ids=ids.unsqueeze(0),
                position_ids=step.positions.unsqueeze(0),
                use_cache=False,
            )
        answer.finish()
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden


def _refuse_by_config(model: Any, max_model_len: int) -> None:
    config = model.config.get_text_config(decoder=True)
    if getattr(model, "_is_stateful", False):
        raise UnfitError("it keeps a state that is not keys and values")
    for rope in _rope_tables(getattr(config, "rope_parameters", None)):
        original = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        if rope.get("rope_type") in ROTARY_BY_LENGTH and max_model_len > original:
            raise UnfitError("its rotary angles depend on the length of the whole batch")


def _rope_tables(parameters: Any) -> list[dict[str, Any]]:
    """The tables of rotary parameters: one, or one per layer type."""
    if not isinstance(parameters, dict):
        return []
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]
