import json
from pathlib import Path
from typing import Any

import pytest

from fakes.model_folders import DEMO
from yaie.checkpoint import sizes
from yaie.checkpoint.safetensors import read_header


def weights(folder: Path, *tensors: tuple[str, str, int], name: str = "a.safetensors") -> Path:
    """A header of (name, type, bytes), without the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for tensor, dtype, size in tensors:
        header[tensor] = {"dtype": dtype, "shape": [1], "data_offsets": [0, size]}
    encoded = json.dumps(header).encode()
    path = folder / name
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded)
    return path


def test_elements_are_counted_by_type_over_all_files(tmp_path: Path) -> None:
    one = weights(tmp_path, ("a.weight", "BF16", 20), ("b.weight", "F32", 40))
    two = weights(tmp_path, ("c.weight", "F16", 2), name="b.safetensors")
    assert sizes.elements([one, two]) == 10 + 10 + 1


def test_what_a_text_model_does_not_load_does_not_count(tmp_path: Path) -> None:
    path = weights(
        tmp_path,
        ("model.layers.0.w", "BF16", 2),
        ("model.layers.61.w", "BF16", 2000),
        ("model.visual.blocks.0.w", "BF16", 2000),
        ("lm_head.weight", "BF16", 2000),
    )
    assert sizes.elements([path], 61, tied=True) == 1
    assert sizes.elements([path]) == 2001


def test_the_demo_is_counted_as_the_loader_counts_it() -> None:
    path = DEMO / "model.safetensors"
    bytes_ = sum(entry.end - entry.start for entry in read_header(path).values())
    assert sizes.elements([path]) == bytes_ // 2


@pytest.mark.parametrize(
    "content",
    [b"", b"version https://git-lfs", b"\xff" * 8, (5).to_bytes(8, "little") + b"[1,2]",
     (14).to_bytes(8, "little") + b'{"a.weight":1}'],
)  # fmt: skip
def test_of_a_broken_file_nothing_is_known(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    assert sizes.elements([path]) is None
    assert sizes.elements([tmp_path / "missing"]) is None
