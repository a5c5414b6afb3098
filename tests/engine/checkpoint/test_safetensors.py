"""Every lie that a safetensors header can tell is refused before a tensor is read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from yaie.checkpoint.safetensors import SafetensorsFile, read_header
from yaie_api.errors import InvalidRequestError

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [2], "data_offsets": [24, 28]},
}
DATA = bytes(28)


def write(path: Path, header: Any, data: bytes = DATA) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def test_tensors_equal_what_the_library_wrote(tmp_path: Path) -> None:
    tensors = {
        "x": torch.randn(3, 5),
        "half": torch.randn(7).bfloat16(),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "m.safetensors")
    assert set(file.entries) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(file.tensor(name), tensor)
        assert file.tensor(name).dtype == tensor.dtype


def test_writing_to_a_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", GOOD)
    before = path.read_bytes()
    SafetensorsFile(path).tensor("a").fill_(1.0)
    assert path.read_bytes() == before


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return GOOD | {name: GOOD[name] | fields}


BAD: dict[str, Callable[[Path], Path]] = {
    "not JSON": lambda p: write(p, b"{nope"),
    "not an object": lambda p: write(p, [1, 2]),
    "entry not an object": lambda p: write(p, GOOD | {"b": 3}),
    "unknown dtype": lambda p: write(p, changed("b", dtype="F8_E4M3", shape=[4])),
    "shape too large": lambda p: write(p, changed("a", shape=[3, 3])),
    "negative size": lambda p: write(p, changed("a", shape=[-2, -3])),
    "size of 2**60": lambda p: write(p, changed("a", shape=[2**60, 2])),
    "shape with a bool": lambda p: write(p, changed("a", shape=[True, 6])),
    "offsets reversed": lambda p: write(p, changed("a", data_offsets=[24, 0])),
    "three offsets": lambda p: write(p, changed("a", data_offsets=[0, 12, 24])),
    "overlap": lambda p: write(p, changed("b", data_offsets=[20, 24])),
    "hole": lambda p: write(p, changed("b", data_offsets=[26, 30]), DATA + bytes(2)),
    "past the end": lambda p: write(p, GOOD, DATA[:-1]),
    "bytes left over": lambda p: write(p, GOOD, DATA + b"x"),
    "empty file": lambda p: (p.write_bytes(b"") and p) or p,
    "only a length": lambda p: (p.write_bytes((10).to_bytes(8, "little")) and p) or p,
    "length beyond the cap": lambda p: (
        (p.write_bytes((2**40).to_bytes(8, "little") + b"{}") and p) or p
    ),
    "deep nesting": lambda p: write(p, b"[" * 100_000),
}


@pytest.mark.parametrize("lie", BAD)
def test_a_corrupt_header_is_refused(tmp_path: Path, lie: str) -> None:
    path = BAD[lie](tmp_path / "m.safetensors")
    with pytest.raises(InvalidRequestError):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (DATA[:-1], r"is cut off: \d+ bytes of \d+\. Download it again"),
        (DATA + b"x", r"not a valid safetensors file .*Download it again"),
    ],
)
def test_a_file_of_another_length_is_to_be_downloaded_again(
    tmp_path: Path, content: bytes, says: str
) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        read_header(write(tmp_path / "m.safetensors", GOOD, content))


def test_a_placeholder_of_git_is_told_from_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    with pytest.raises(InvalidRequestError, match="git lfs pull"):
        read_header(path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 150), value=st.integers(0, 255))
def test_one_changed_byte_is_refused_or_harmless(tmp_path: Path, position: int, value: int) -> None:
    """Whatever byte changes, every tensor that is handed out lies inside the file."""
    path = write(tmp_path / "m.safetensors", GOOD)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(bytes(content))
    try:
        file = SafetensorsFile(path)
    except InvalidRequestError:
        return
    total = sum(file.tensor(name).nbytes for name in file.entries)
    assert total <= len(content)
