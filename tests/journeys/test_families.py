"""A stranger's own checkpoints, in /tmp and of several families, served by name side by side."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from engine.models import oracle
from engine.models.variants import DENSE
from engine.models.variants_sparse import SPARSE
from engine.text.vocabularies import write_model_folder
from fakes.running_up import up as up_with

pytestmark = [
    pytest.mark.journey,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("real_main"),
]
oracle.VARIANTS.update(SPARSE)
FAMILIES = {
    "llama": "llama-gqa",
    "qwen3": "qwen3",
    "gemma3": next(name for name in DENSE if name.startswith("gemma3")),
    "mixtral": "mixtral",
}


def chat(url: str, model: str) -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    data = json.dumps(body | {"ignore_eos": True}).encode()
    request = urllib.request.Request(  # loopback only
        f"{url}/v1/chat/completions", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_checkpoints_of_four_families_in_tmp_are_served_by_their_folders(
    tmp_path: Path, folder_in_tmp: Path
) -> None:
    for name, variant in FAMILIES.items():
        write_model_folder(folder_in_tmp / name)
        oracle.save(variant, folder_in_tmp / name)
    folders = [str(folder_in_tmp / name) for name in FAMILIES]
    with up_with(tmp_path / "state", *folders) as running:
        running.wait_for("Ctrl-C", timeout_s=180)
        for name in FAMILIES:
            usage = chat(f"http://127.0.0.1:{running.port}", name)["usage"]
            assert usage["completion_tokens"] == 8, name
