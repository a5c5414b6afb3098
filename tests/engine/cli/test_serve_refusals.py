"""What `yaie serve` refuses soon after Enter, before it reads weights: one sentence says what to
write.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.model_folders import copy_of_demo, write_hollow_weights

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
GENEROUS_S = 30.0
"""Each takes about a second on an idle machine."""


def serve(*arguments: str) -> str:
    """What the command says, which has to end with status 1 and without a model."""
    command = [sys.executable, "-m", "yaie", "serve", *arguments, "--device", "cpu"]
    began_s = time.monotonic()
    done = subprocess.run(
        [*command, "--port", "0"] if "--port" not in arguments else command,
        capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - began_s < GENEROUS_S
    assert '"message": "ready"' not in done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def without_tokenizer(folder: Path) -> list[str]:
    return [str(copy_of_demo(folder, without=("tokenizer.json",)))]


def broken_tokenizer(folder: Path) -> list[str]:
    model = copy_of_demo(folder)
    (model / "tokenizer.json").write_text("{")
    return [str(model)]


def broken_template(folder: Path) -> list[str]:
    (folder / "mine.jinja").write_text("fine\n{% for %}\n")
    return ["builtin://yaie-demo", "--chat-template", str(folder / "mine.jinja")]


def gguf_folder(folder: Path) -> list[str]:
    (folder / "model-Q4_K_M.gguf").write_bytes(b"GGUF")
    return [str(folder)]


def too_heavy(folder: Path) -> list[str]:
    model = copy_of_demo(folder)
    write_hollow_weights(model, 4096)
    return [str(model)]


REFUSED: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "more than the model has": (
        lambda _: ["builtin://yaie-demo", "--max-model-len", "5000"],
        "max_model_len is 5000, and this model has 4096 positions: write --max-model-len 4096",
    ),
    "no tokenizer": (without_tokenizer, "has no tokenizer. Add its .*, or name .* --tokenizer"),
    "a broken tokenizer": (broken_tokenizer, "tokenizer.json cannot be read"),
    "no such template": (
        lambda _: ["builtin://yaie-demo", "--chat-template", "no-such.jinja"],
        "no chat template at 'no-such.jinja': name a file with --chat-template",
    ),
    "a broken template": (broken_template, "mine.jinja' is no Jinja template: line 2"),
    "a folder of GGUF": (gguf_folder, "GGUF format, which is not supported. Name the safetensors"),
    "weights that are too heavy": (
        too_heavy,
        r"does not fit: weights of 8192.0 GiB > \d+.\d GiB that are free .* --dtype bfloat16",
    ),
    "a collector that speaks gRPC": (
        lambda _: ["builtin://yaie-demo", "--otlp-traces-endpoint", "grpc://collector:4317"],
        "write the collector's HTTP address, such as http://collector:4318",
    ),
    "a name of Ollama": (lambda _: ["llama3.2"], "write hf://meta-llama/Llama-3.2-3B-Instruct"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_told_in_a_sentence(tmp_path: Path, case: str) -> None:
    arguments, told = REFUSED[case]
    assert re.search(told, serve(*arguments(tmp_path)))


def test_a_port_in_use_is_told_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = serve("builtin://yaie-demo", "--port", port)
    assert f"Cannot listen on 127.0.0.1:{port}" in said
    assert "Another --port may be free" in said
    assert "loading" not in said
