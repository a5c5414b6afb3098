"""Two implementations of transformers' attention interface: a probe, which records what a model's
attention layers need, and the paged one, which computes attention over our pages.

Both are registered under names that a model's configuration selects. The probe also registers a
mask interface, so that every layer receives the meaning of its mask (`Visible`) instead of a mask
tensor; the paged one registers none, and then transformers creates no masks.
"""

import threading
from dataclasses import dataclass
from typing import Any

import torch

import yaie_kernels as ops
from yaie.layers.attention import Segment, StepInput
from yaie.layers.interfaces import LayerCache
from yaie.models.hf.errors import UnfitError
from yaie.models.hf.masks import Visible, visible

PROBE, PAGED = "yaie_probe", "yaie_paged"
WITHOUT_MEANING = frozenset({
    "cache_position",
    "cu_seq_lens_k",
    "cu_seq_lens_q",
    "deterministic",
    "is_causal",
    "layer_idx",
    "logits_to_keep",
    "max_length_k",
    "max_length_q",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "past_key_values",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "sliding_window",
    "use_cache",
})  # fmt: skip
"""Arguments that have no effect here. The window and causality are taken from the mask, as in
transformers' own eager attention.
"""


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """One attention layer as recorded by the probe. `asked`: its arguments scaling and softcap."""

    module: Any
    asked: tuple[Any, Any]
    cache: LayerCache
    scale: float
    softcap: float | None


class LayerProbe:
    """Records the attention layers of one forward pass, in the order of their calls."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.layers: list[AttentionLayer] = []

    def __call__(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        *,
        scaling: float | None = None,
        softcap: float | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """Record the layer and return zeros: only shapes matter in this pass."""
        if isinstance(attention_mask, UnfitError):
            raise attention_mask
        if not isinstance(attention_mask, Visible):
            raise UnfitError("an attention layer has a mask of its own")
        refuse_unknown(others)
        if any(layer.module is module for layer in self.layers):
            raise UnfitError("an attention layer attends twice in a step")
        size, value_size = query.shape[-1], value.shape[-1]
        if key.shape[-1] != size or key.shape[:3] != value.shape[:3] or query.shape[0] != 1:
            raise UnfitError("its queries, keys and values do not fit together")
        if query.shape[2] != key.shape[2] or query.shape[1] % key.shape[1]:
            raise UnfitError("its queries, keys and values do not fit together")
        cache = LayerCache(key.shape[1], size, value_size, attention_mask.window)
        scale = size**-0.5 if scaling is None else _number(scaling)
        cap = None if softcap is None else _number(softcap)
        self.layers.append(AttentionLayer(module, (scaling, softcap), cache, scale, cap))
        return value.new_zeros(1, query.shape[2], query.shape[1], value_size), None


class PagedStep:
    """Computes the attention calls of one forward pass; the i-th call is that of layer i."""

    def __init__(self, layers: tuple[AttentionLayer, ...], step: StepInput) -> None:
        self._layers = layers
        self._step = step
        self.calls = 0

    def __call__(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """Write keys and values [1, heads, T, size] and attend -> [1, T, heads, value size].

        Raises:
            UnfitError: the layer or its arguments differ from those that the probe recorded.

        """
        if self.calls == len(self._layers):
            raise UnfitError("an attention layer attends twice in a step")
        layer = self._layers[self.calls]
        asked = (others.pop("scaling", None), others.pop("softcap", None))
        if layer.module is not module or layer.asked != asked or attention_mask is not None:
            raise UnfitError("its attention layers change from step to step")
        refuse_unknown(others)
        keys, values = self._step.caches[self.calls]
        self.calls += 1
        q, k, v = (_rows(tensor, keys.dtype) for tensor in (query, key, value))
        ops.write_kv(k, v, keys, values, self._step.slot_mapping)
        outputs = [
            _attend(layer, q[segment.first : segment.last], keys, values, segment)
            for segment in self._step.segments
        ]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output.to(query.dtype).unsqueeze(0), None

    def finish(self) -> None:
        """Check that every layer was called.

        Raises:
            UnfitError: a layer was not called in this step.

        """
        if self.calls != len(self._layers):
            raise UnfitError("an attention layer was left out of a step")


def _attend(
    layer: AttentionLayer,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segment: Segment,
) -> torch.Tensor:
    return ops.paged_attention(
        q,
        keys,
        values,
        segment.block_tables,
        segment.seq_lens,
        segment.query_start,
        scale=layer.scale,
        max_query_len=segment.max_query_len,
        max_seq_len=segment.max_seq_len,
        window=layer.cache.window,
        softcap=layer.softcap,
        rows=segment.rows,
    )


def _rows(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[1, heads, T, D] -> contiguous [T, heads, D]."""
    return tensor[0].transpose(0, 1).to(dtype).contiguous()


def refuse_unknown(others: dict[str, Any]) -> None:
    """Refuse attention arguments that are not supported.

    Raises:
        UnfitError: an unknown argument has a value that may have an effect.

    """
    for name, value in others.items():
        if value is None or name in WITHOUT_MEANING or (name == "dropout" and value == 0.0):
            continue
        raise UnfitError(f"its attention takes {name}")


def _number(value: Any) -> float:
    if isinstance(value, torch.Tensor) or not isinstance(value, int | float):
        raise UnfitError("its attention is scaled by more than a number")
    return float(value)


class _Active(threading.local):
    """The object that handles this thread's attention calls."""

    answer: LayerProbe | PagedStep | None = None


_active = _Active()


class answering:  # noqa: N801 - reads as a verb: `with answering(probe):`
    """Context manager in which `answer` handles this thread's attention calls."""

    def __init__(self, answer: LayerProbe | PagedStep) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        _active.answer = self._answer

    def __exit__(self, *_: object) -> None:
        _active.answer = None


def _called(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    if _active.answer is None:
        raise UnfitError("its attention runs outside of a step")
    return _active.answer(*args, **kwargs)


def _mask(*, mask_function: Any, attention_mask: Any = None, **_: Any) -> Visible | UnfitError:
    """The probe's mask interface: returns the mask's meaning, or why it is not supported.

    An unsupported mask is returned, not raised, because some models make masks that they do not
    use; the layer that receives it raises it.
    """
    if attention_mask is not None and not bool(torch.as_tensor(attention_mask).all()):
        return UnfitError("it hides tokens by a mask of its own")
    if not isinstance(_active.answer, LayerProbe):
        return UnfitError("it makes masks outside of its attention")
    try:
        return visible(mask_function, _active.answer.longest)
    except UnfitError as unfit:
        return unfit


def register() -> None:
    """Register both implementations with transformers. Further calls have no effect."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    for name in (PROBE, PAGED):
        AttentionInterface.register(name, _called)
    AttentionMaskInterface.register(PROBE, _mask)


def select(model: Any, name: str) -> list[tuple[Any, str]]:
    """Let all modules of `model` use attention `name`; returns the argument for `restore`."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [
        (config, config._attn_implementation_internal)  # noqa: SLF001 - as below
        for config in configs.values()
        if hasattr(config, "_attn_implementation_internal")
    ]
    for config, _ in before:
        # The public setter refuses models whose source it does not recognise; the probe checks them
        # instead.
        config._attn_implementation_internal = name  # noqa: SLF001
    return before


def restore(before: list[tuple[Any, str]]) -> None:
    """Undo `select`."""
    for config, name in before:
        config._attn_implementation_internal = name  # noqa: SLF001 - see select
