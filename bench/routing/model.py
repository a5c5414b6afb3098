"""The built-in model made slow: the same answers, for more arithmetic.

It computes a prompt about as fast as HTTP brings it, so that a cached one saves nothing that a
client would see. Real models are in another proportion.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from yaie.checkpoint.source import BUILTIN, CONFIG, WEIGHTS


def write_widened(folder: Path, width: int) -> Path:
    """Write the built-in model with MLPs of so many hidden units. Those that it did not have are
    zero, so each answer stays as it is.
    """
    shutil.copytree(BUILTIN / "yaie-demo", folder)
    config = json.loads((folder / CONFIG).read_text())
    added = width - config["intermediate_size"]
    (folder / CONFIG).write_text(json.dumps(config | {"intermediate_size": width}))
    tensors = load_file(folder / WEIGHTS)
    for name, tensor in tensors.items():
        if name.endswith("mlp.down_proj.weight"):
            tensors[name] = torch.nn.functional.pad(tensor, (0, added))
        elif ".mlp." in name:
            tensors[name] = torch.nn.functional.pad(tensor, (0, 0, 0, added))
    save_file(tensors, folder / WEIGHTS)
    return folder
