"""Reads safetensors files: the header is checked completely; tensors are memory-mapped, not copied.

With wrong offsets in a header, a tensor could contain another tensor's bytes. So every range is
checked against the shape, the dtype, its neighbours and the file's length.
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from yaie_api.errors import InvalidRequestError

MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
INTEGERS = {
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""For tables of ids and masks, which some models store with their weights."""
NO_DTYPES: Mapping[str, torch.dtype] = MappingProxyType({})


class TensorEntry(NamedTuple):
    """One tensor of a file: [start, end) are bytes from the beginning of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A checked, memory-mapped file. Tensors are views of the mapping (private, copy on write).

    Floating-point dtypes and those in `more` are accepted.
    """

    def __init__(self, path: Path, more: Mapping[str, torch.dtype] = NO_DTYPES) -> None:
        self.name = path.name
        self.entries = read_header(path, more)
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor, backed by the mapped file."""
        dtype, shape, start, end = self.entries[name]
        if start == end:
            return torch.empty(shape, dtype=dtype)
        count = (end - start) // dtype.itemsize
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=start).view(shape)


def read_header(path: Path, more: Mapping[str, torch.dtype] = NO_DTYPES) -> dict[str, TensorEntry]:
    """Read and check the header of a safetensors file.

    Raises:
        InvalidRequestError: the file is truncated or a Git LFS placeholder, the header does not
            conform to the format, or a tensor has an unsupported dtype.

    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(LENGTH_BYTES)
            _refuse_placeholder(path, first)
            length = int.from_bytes(first, "little")
            longest = min(MAX_HEADER_BYTES, size - LENGTH_BYTES)
            _check(2 <= length <= longest, path, "header length")
            raw = json.loads(file.read(length))
    except OSError as error:
        raise InvalidRequestError(f"{path.name} cannot be read.", param="model") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"{path.name}: the safetensors header is not valid JSON. Download the file again.",
            param="model",
        ) from error
    _check(isinstance(raw, dict), path, "header")
    base = LENGTH_BYTES + length
    raw.pop("__metadata__", None)
    dtypes = DTYPES | dict(more)
    entries = {name: _entry(path, name, value, base, dtypes) for name, value in raw.items()}
    _check_layout(path, entries, base, size)
    return entries


def _entry(
    path: Path, name: str, value: Any, base: int, dtypes: Mapping[str, torch.dtype]
) -> TensorEntry:
    _check(isinstance(value, dict), path, name)
    shape, offsets, dtype = (value.get(key) for key in ("shape", "data_offsets", "dtype"))
    _check(isinstance(shape, list) and all(_is_size(n) for n in shape), path, name)
    _check(isinstance(offsets, list) and len(offsets) == 2, path, name)
    _check(all(_is_size(n) for n in offsets), path, name)
    if dtype not in dtypes:
        raise InvalidRequestError(
            f"{path.name}: {name} is stored as {str(dtype)[:20]}; supported: "
            f"{', '.join(dtypes)}. Name a checkpoint that is not quantized.",
            param="model",
        )
    start, end = offsets
    _check(end - start == math.prod(shape) * dtypes[dtype].itemsize, path, name)
    return TensorEntry(dtypes[dtype], tuple(shape), base + start, base + end)


def _check_layout(path: Path, entries: dict[str, TensorEntry], base: int, size: int) -> None:
    """Check that the tensors fill the data section without gaps or overlaps."""
    position = base
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        _check(entry.start == position, path, name)
        position = entry.end
    if position > size:
        raise InvalidRequestError(
            f"{path.name} is cut off: {size} bytes of {position}. Download it again.", param="model"
        )
    _check(position == size, path, "file length")


def _refuse_placeholder(path: Path, first: bytes) -> None:
    """Refuse the small text file that a clone without Git LFS has in place of a large file."""
    if first == b"version ":
        raise InvalidRequestError(
            f"{path.name} is a placeholder of Git LFS, not the file. Run git lfs pull in the "
            "model's folder.",
            param="model",
        )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**48


def _check(holds: bool, path: Path, what: str) -> None:  # noqa: FBT001 - a bare condition
    if not holds:
        raise InvalidRequestError(
            f"{path.name} is not a valid safetensors file ({what[:120]}). Download it again.",
            param="model",
        )
