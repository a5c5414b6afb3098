"""Selects how a transformers model runs: with our pages if that passes the check, else with
transformers' own cache. It is refused if neither agrees with its own forward pass.
"""

import logging
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch

from yaie.layers.options import TensorOptions
from yaie.models.hf import attention, check
from yaie.models.hf.cached import CachedTransformer, CacheMode
from yaie.models.hf.errors import UnfitError
from yaie.models.hf.paged import PagedTransformer
from yaie.models.model import DecoderModel
from yaie_api.errors import InvalidRequestError
from yaie_api.logs import fields

T = TypeVar("T")

log = logging.getLogger(__name__)
FATAL = (torch.OutOfMemoryError, torch.AcceleratorError)
"""Errors of the device, which do not mean that the model is unsupported."""
UNCOMMON = "its layers do not attend in the common way"
TOLD = (
    frozenset[str](),
    frozenset({"position_ids"}),
    frozenset({"attention_mask"}),
    frozenset({"position_ids", "attention_mask"}),
)
"""Arguments that a model with its own cache may need; the first set that passes is used."""


class Chosen(NamedTuple):
    """A model that passed its check. `carry`: how it uses its own cache; None: it uses pages."""

    model: DecoderModel
    carry: CacheMode | None


@torch.inference_mode()
def choose(model: Any, options: TensorOptions, max_model_len: int) -> Chosen:
    """Return the best way to run `model` that agrees with its own forward pass.

    Raises:
        InvalidRequestError: there is none; the message gives the reasons.

    """
    attention.register()
    name = type(model).__name__
    own = attention.select(model, "eager")
    reason, paged = _try(partial(_paged, model, options, max_model_len), UNCOMMON)
    if paged is not None:
        log.info("model runs in pages", extra=fields(architecture=name))
        return Chosen(paged, None)
    attention.restore(own)
    log.warning(
        "model does not run in pages: one sequence at a time, without a prefix cache",
        extra=fields(architecture=name, reason=reason),
    )
    why, chosen = _try(partial(_alone, model, options), "its forward pass fails")
    if chosen is None:
        raise InvalidRequestError(
            f"This model cannot be served. In pages: {reason}. On its own cache: {why}.",
            param="model",
        )
    log.info("model runs on its own cache", extra=fields(takes=chosen.carry.value))
    return Chosen(chosen, chosen.carry)


def _paged(model: Any, options: TensorOptions, max_model_len: int) -> DecoderModel:
    yardstick = _yardstick(model)
    paged = PagedTransformer(model, options, max_model_len)
    check.prove_paged(paged, yardstick)
    return paged


def _alone(model: Any, options: TensorOptions) -> CachedTransformer:
    yardstick = _yardstick(model)
    why = ""
    for carry, told in product(CacheMode, TOLD):
        make = partial(_cached, model, options, yardstick, carry, told)
        why, cached = _try(make, "it does not take its own cache back")
        if cached is not None:
            return cached
    raise UnfitError(why)


def _cached(
    model: Any,
    options: TensorOptions,
    yardstick: check.Yardstick,
    carry: CacheMode,
    told: frozenset[str],
) -> CachedTransformer:
    cached = CachedTransformer(model, options, carry, told)
    check.prove_cached(cached, yardstick)
    return cached


def _yardstick(model: Any) -> check.Yardstick:
    ids = check.sequences(model.config, check.LENGTHS, _vocab_size(model))
    return check.Yardstick(model, ids)


def _vocab_size(model: Any) -> int:
    size: int = model.get_input_embeddings().weight.shape[0]
    return size


def _try(make: Callable[[], T], otherwise: str) -> tuple[str, T | None]:
    """("", result of `make`), or (reason, None) if it fails.

    The reason is that of an UnfitError, else `otherwise`: a model's code may raise any exception.
    """
    try:
        return "", make()
    except FATAL:
        raise
    except UnfitError as unfit:
        return str(unfit), None
    except Exception:
        log.debug("self-check raised", exc_info=True)
        return otherwise, None
