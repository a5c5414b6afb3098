"""How large a model's weights are, from the headers of their files: nothing else of them is read.

Without torch, so that the engine process can ask before it imports that. Broken files are passed
over here: `yaie.checkpoint.safetensors` says what is wrong with them.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element by its type in a file. Others are tables, which models keep as they are."""
_MAX_HEADER_BYTES = 100_000_000
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_NO_TEXT = re.compile(r"vision|visual|image|audio|multi_modal|mm_projector")
"""Parts of models for more than text, which are not loaded."""


def elements(
    paths: Iterable[Path], num_layers: int | None = None, *, tied: bool = False
) -> int | None:
    """Number of weights in files of safetensors that a text model loads; None: it is not known.

    `num_layers`: later layers of the files are not loaded; None: all are. `tied`: nor is a head.
    """
    total = 0
    for path in paths:
        header = _header(path)
        if header is None:
            return None
        for name, entry in header.items():
            if not _is_loaded(name, num_layers) or (tied and name.startswith("lm_head.")):
                continue
            try:
                start, end = entry["data_offsets"]
                total += (end - start) // ITEM_BYTES.get(entry["dtype"], end - start or 1)
            except (KeyError, TypeError, ValueError):
                return None
    return total


def _is_loaded(name: str, num_layers: int | None) -> bool:
    if name == "__metadata__" or _NO_TEXT.search(name):
        return False
    layer = _LAYER.search(name)
    return num_layers is None or layer is None or int(layer[1]) < num_layers


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                return None
            return msgspec.json.decode(file.read(length), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return None
