"""Fills a model's tensors from safetensors files, or with random numbers.

The model names its tensors and their destinations (`parameters()`). Each tensor is copied from the
memory-mapped file directly to its destination on the device, with conversion of the dtype.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch

from yaie.checkpoint.layout import EMBEDDING, HEAD, layout_of
from yaie.checkpoint.safetensors import NO_DTYPES, SafetensorsFile
from yaie.checkpoint.source import weight_paths
from yaie.layers.options import Alternative, Alternatives, NamedTensors
from yaie_api.errors import InvalidRequestError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)
"""Buffers that old checkpoints contain; they are computed here instead."""
DUMMY_SCALE = 0.02
NOT_ONE_MODEL = "config.json and the weights are not of one model: download both again."


class Parameterised(Protocol):
    """An object that can name its tensors."""

    def parameters(self) -> NamedTensors: ...


class Loadable(Parameterised, Protocol):
    """A model whose checkpoints may have alternative names and shapes, or unused tensors."""

    def alternatives(self) -> Alternatives: ...

    def unused(self) -> tuple[str, ...]: ...


@torch.inference_mode()
def load(model: Loadable, folder: Path) -> None:
    """Copy the checkpoint in `folder` into the model.

    Raises:
        InvalidRequestError: the weights are pickled, a file is malformed, or tensors are missing,
            left over, or of another shape than config.json specifies.

    """
    files = open_files(folder)
    missing = dict(model.parameters())
    places = {name: Alternative(name, tensor, (name,)) for name, tensor in missing.items()}
    places |= {each.name: each for each in model.alternatives()}
    ignored = model.unused()
    layout = layout_of({name for file in files for name in file.entries})
    left_over: dict[str, torch.Tensor] = {}
    skipped = 0
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
                left_over[name] = file.tensor(stored)
    report_missing(missing)
    _drop_repeated_head(left_over, places[EMBEDDING].destination)
    report_left_over(left_over)
    if skipped:
        log.info("tensors of other modalities left out", extra=fields(count=skipped))


def open_files(
    folder: Path, more: Mapping[str, torch.dtype] = NO_DTYPES
) -> tuple[SafetensorsFile, ...]:
    """Map the checkpoint's files. `more`: dtypes to accept besides floating-point ones.

    Raises:
        InvalidRequestError: the weights are pickled, a file is missing or malformed, or a tensor is
            in two files.

    """
    files = tuple(SafetensorsFile(path, more) for path in weight_paths(folder))
    where: dict[str, str] = {}
    for file in files:
        for name in file.entries:
            if where.setdefault(name, file.name) != file.name:
                raise InvalidRequestError(
                    f"{name} is in two files, {where[name]} and {file.name}. Download the model "
                    "again.",
                    param="model",
                )
    return files


@torch.inference_mode()
def fill_dummy(model: Parameterised, seed: int = 0) -> None:
    """Fill a model with random numbers (norm weights with ones), for benchmarks."""
    generators: dict[torch.device, torch.Generator] = {}
    for name, tensor in model.parameters():
        if "norm" in name:
            tensor.fill_(1.0)
            continue
        if tensor.device not in generators:
            generators[tensor.device] = torch.Generator(tensor.device).manual_seed(seed)
        tensor.normal_(0.0, DUMMY_SCALE, generator=generators[tensor.device])


def count(model: Parameterised) -> tuple[int, int]:
    """Return the model's (number of parameters, bytes); a tied head is not counted twice."""
    sizes = [(tensor.numel(), tensor.nbytes) for _, tensor in model.parameters()]
    return sum(number for number, _ in sizes), sum(size for _, size in sizes)


def _copy(file: SafetensorsFile, name: str, destination: torch.Tensor) -> None:
    source = file.tensor(name)
    if source.shape != destination.shape:
        raise misshapen(name, source.shape, destination.shape)
    destination.copy_(source)


def misshapen(name: str, stored: Iterable[int], asked: Iterable[int]) -> InvalidRequestError:
    """Return the error for a tensor whose shape differs from the one in config.json."""
    return InvalidRequestError(
        f"{name} has shape {list(stored)}; config.json asks for {list(asked)}. {NOT_ONE_MODEL}",
        param="model",
    )


def report_missing(names: Collection[str]) -> None:
    """Refuse a checkpoint with missing tensors.

    Raises:
        InvalidRequestError: `names`, the missing tensors, is not empty.

    """
    if names:
        raise InvalidRequestError(
            f"The checkpoint lacks {len(names)} tensors: {_some(names)}. {NOT_ONE_MODEL}",
            param="model",
        )


def report_left_over(names: Collection[str]) -> None:
    """Refuse a checkpoint with tensors that the model does not have.

    Raises:
        InvalidRequestError: `names`, these tensors, is not empty.

    """
    if names:
        raise InvalidRequestError(
            f"The checkpoint holds {len(names)} tensors that the model has no place for: "
            f"{_some(names)}. {NOT_ONE_MODEL}",
            param="model",
        )


def _drop_repeated_head(left_over: dict[str, torch.Tensor], embedding: torch.Tensor) -> None:
    """Drop the head of a tied checkpoint, which must equal the embedding."""
    head = left_over.pop(HEAD, None)
    if head is not None and not torch.equal(head.to(embedding), embedding):
        raise InvalidRequestError(
            f"config.json says that the head is the embedding (tie_word_embeddings), but {HEAD} "
            "holds other numbers. Set tie_word_embeddings to false in config.json.",
            param="model",
        )


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
