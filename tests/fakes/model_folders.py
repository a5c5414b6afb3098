"""Folders of models that cannot be served, made from the built-in one."""

import json
import shutil
from pathlib import Path
from typing import Any

from yaie.checkpoint.source import BUILTIN

DEMO = BUILTIN / "yaie-demo"


def copy_of_demo(folder: Path, *, without: tuple[str, ...] = (), **config: Any) -> Path:
    """A copy of the built-in model without some files, its config.json changed."""
    made = folder / "model"
    shutil.copytree(DEMO, made, ignore=lambda *_: [*without, "README.md"])
    raw = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps(raw | config))
    return made


def write_hollow_weights(folder: Path, gib: float) -> None:
    """Replace the weights by a file that says to hold so many GiB of bfloat16, and holds nothing:
    its size is real, and its content a hole.
    """
    size = int(gib * 2**30)
    tensor = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size // 2 * 2]}
    header = json.dumps({"model.embed_tokens.weight": tensor}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size // 2 * 2)
