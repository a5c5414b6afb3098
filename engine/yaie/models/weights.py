"""Filling a model's tensors: from one safetensors file or an index of shards, or random numbers.

The model names what it wants and where it goes (`parameters()`); the checkpoint's tensors are
copied from the mapped file straight into place on the device, cast on the way.
"""

import logging
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from yaie.layers.options import Alternative, Alternatives, NamedTensors
from yaie.models.layout import layout_of
from yaie.models.safetensors import SafetensorsFile
from yaie.models.source import refuse_pickled_weights, weight_files
from yaie_api.errors import InvalidRequestError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)
"""Buffers that old checkpoints carry and that are computed here."""
DUMMY_SCALE = 0.02


class Parameterised(Protocol):
    """Anything that can name its tensors."""

    def parameters(self) -> NamedTensors: ...


@runtime_checkable
class SeveralForms(Protocol):
    """A model whose checkpoints differ in names and shapes, or hold more than it runs."""

    def alternatives(self) -> Alternatives: ...

    def unused(self) -> tuple[str, ...]: ...


@torch.inference_mode()
def load(model: Parameterised, folder: Path) -> None:
    """Copy the checkpoint in `folder` into the model.

    Raises:
        InvalidRequestError: pickled weights, a malformed file, or tensors that are missing, left
            over or of another shape than the config says.

    """
    refuse_pickled_weights(folder)
    missing = dict(model.parameters())
    places = {name: Alternative(name, tensor, (name,)) for name, tensor in missing.items()}
    ignored: tuple[str, ...] = ()
    if isinstance(model, SeveralForms):
        places |= {each.name: each for each in model.alternatives()}
        ignored = model.unused()
    left_over, skipped = [], 0
    files = [SafetensorsFile(folder / name) for name in weight_files(folder)]
    layout = layout_of({name for file in files for name in file.entries})
    for file in files:
        for stored in file.entries:
            name = layout.name(stored)
            place = places.get(name or "")
            if name is None:
                skipped += 1
            elif place is not None:
                _copy(file, stored, place.destination)
                for replaced in place.replaces:
                    missing.pop(replaced, None)
            elif not (name.endswith(IGNORED_SUFFIXES) or name.startswith(ignored)):
                left_over.append(name)
    _report_missing(list(missing))
    _report_left_over(model, left_over)
    if skipped:
        log.info("tensors of other modalities left out", extra=fields(count=skipped))


@torch.inference_mode()
def fill_dummy(model: Parameterised, seed: int = 0) -> None:
    """Fill with random numbers (norm weights with ones): for benchmarks without a checkpoint."""
    generators: dict[torch.device, torch.Generator] = {}
    for name, tensor in model.parameters():
        if "norm" in name:
            tensor.fill_(1.0)
            continue
        if tensor.device not in generators:
            generators[tensor.device] = torch.Generator(tensor.device).manual_seed(seed)
        tensor.normal_(0.0, DUMMY_SCALE, generator=generators[tensor.device])


def count(model: Parameterised) -> tuple[int, int]:
    """Return (parameters, bytes) of the model; a tied head counts once."""
    sizes = [(tensor.numel(), tensor.nbytes) for _, tensor in model.parameters()]
    return sum(number for number, _ in sizes), sum(size for _, size in sizes)


def _copy(file: SafetensorsFile, name: str, destination: torch.Tensor) -> None:
    source = file.tensor(name)
    if source.shape != destination.shape:
        raise InvalidRequestError(
            f"{name} has shape {list(source.shape)}; config.json asks for "
            f"{list(destination.shape)}.",
            param="model",
        )
    destination.copy_(source)


def _report_missing(names: list[str]) -> None:
    if names:
        raise InvalidRequestError(
            f"The checkpoint lacks {len(names)} tensors: {_some(names)}.", param="model"
        )


def _report_left_over(model: Parameterised, names: list[str]) -> None:
    """A tied checkpoint may repeat the head; anything else means the config is another model's."""
    unknown = [name for name in names if not (name == "lm_head.weight" and _is_tied(model))]
    if unknown:
        raise InvalidRequestError(
            f"The checkpoint holds {len(unknown)} tensors that the model has no place for: "
            f"{_some(unknown)}.",
            param="model",
        )


def _is_tied(model: Parameterised) -> bool:
    return "lm_head.weight" not in dict(model.parameters())


def _some(names: list[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
