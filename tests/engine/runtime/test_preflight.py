import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fakes.model_folders import copy_of_demo, write_hollow_weights
from yaie.checkpoint.source import read_config
from yaie.layers.options import TensorOptions
from yaie.llm import LLM
from yaie.models import registry
from yaie.runtime import host
from yaie.runtime.process import engine_process
from yaie.runtime.startup import memory, preflight
from yaie.runtime.startup.preflight import Memory
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError
from yaie_api.resource import capacity

GIB = 2**30


def check(folder: Path, free_gib: float, *, more: str = "", **settings: Any) -> None:
    config = EngineConfig(model=str(folder), **settings)
    shape = registry.native(read_config(folder), "auto")
    memory = Memory(int(free_gib * GIB), "of this machine's memory", 2, more)
    preflight.check_memory(config, folder, shape, memory)


def test_what_fits_passes(tmp_path: Path) -> None:
    model = copy_of_demo(tmp_path)
    write_hollow_weights(model, 8)
    check(model, 8)
    check(model, 9, max_model_len=4096)


def test_the_sentence_has_the_arithmetic_and_what_to_lower(tmp_path: Path) -> None:
    """6 layers of 2 key and 2 value heads of 64 in bfloat16: 3 KiB a token."""
    model = copy_of_demo(tmp_path, max_position_embeddings=2**21)
    write_hollow_weights(model, 8)
    with pytest.raises(InvalidRequestError) as refused:
        check(model, 9, max_model_len=2**20)
    assert refused.value.param == "max_model_len"
    assert refused.value.message == (
        "This model does not fit: weights of 8.0 GiB + a KV cache of 3.0 GiB for one sequence of "
        "1048576 tokens > 9.0 GiB that are free of this machine's memory. Use --max-model-len "
        "349525 or less, or a smaller model."
    )


def test_a_length_that_was_left_open_is_no_reason(tmp_path: Path) -> None:
    model = copy_of_demo(tmp_path, max_position_embeddings=2**30)
    write_hollow_weights(model, 8)
    check(model, 8.1)


def test_weights_alone_may_be_too_heavy(tmp_path: Path) -> None:
    model = copy_of_demo(tmp_path)
    write_hollow_weights(model, 8)
    with pytest.raises(InvalidRequestError, match=r"weights of 8.0 GiB > 4.0 GiB") as refused:
        check(model, 4, more="--dtype bfloat16, which halves both")
    assert "Use --dtype bfloat16, which halves both, or a smaller model" in refused.value.message
    check(model, 4, load_format="dummy")


def test_a_cache_of_a_given_size_is_what_counts(tmp_path: Path) -> None:
    model = copy_of_demo(tmp_path, max_position_embeddings=2**21)
    write_hollow_weights(model, 8)
    check(model, 9, max_model_len=2**20, kv_cache_tokens=4096)


@pytest.mark.parametrize(
    ("device", "driver", "is_so"),
    [("cpu", "libc.so.6", True), ("cuda", "none.so", False), ("auto", "none.so", True),
     ("auto", "libc.so.6", False)],
)  # fmt: skip
def test_a_model_is_for_the_cpu_where_no_driver_is(
    monkeypatch: pytest.MonkeyPatch, device: Any, driver: str, is_so: bool
) -> None:
    monkeypatch.setattr(preflight, "CUDA_DRIVER", driver)
    assert preflight.is_for_cpu(EngineConfig(model="m", device=device)) is is_so


def test_a_gpu_counts_what_its_share_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (70 * GIB, 80 * GIB))
    options = TensorOptions(torch.device("cuda"), torch.bfloat16)
    found = memory.memory_for(EngineConfig(model="m", gpu_memory_utilization=0.75), options)
    assert (found.free_bytes, found.item_bytes) == (50 * GIB, 2)
    assert "--gpu-memory-utilization above 0.75" in found.more


def test_broken_weights_are_not_judged_here(tmp_path: Path) -> None:
    model = copy_of_demo(tmp_path)
    (model / "model.safetensors").write_bytes(b"\xff" * 100)
    check(model, 0)


def test_the_engine_process_refuses_before_it_imports_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy_of_demo(tmp_path)
    write_hollow_weights(model, 8)
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 15 * GIB)
    config = EngineConfig(model=str(model), device="cpu")
    with pytest.raises(InvalidRequestError, match=r"weights of 16.0 GiB > 15.0 GiB"):
        engine_process.check(config)
    engine_process.check(EngineConfig(model=str(model), device="cpu", dtype="bfloat16"))
    with pytest.raises(InvalidRequestError, match="this model has 4096 positions"):
        engine_process.check(EngineConfig(model=str(model), device="cpu", max_model_len=4097))


def test_llm_refuses_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy_of_demo(tmp_path)
    write_hollow_weights(model, 8)
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 15 * GIB)
    with pytest.raises(InvalidRequestError, match=r"weights of 16.0 GiB > 15.0 GiB"):
        LLM(str(model), device="cpu")
    with pytest.raises(InvalidRequestError, match="write --max-model-len 4096 or less"):
        LLM("builtin://yaie-demo", device="cpu", max_model_len=4097)


@pytest.mark.parametrize("content", ["", "{", "version https://git-lfs.github.com/spec/v1", "[]"])
def test_llm_refuses_a_broken_tokenizer_before_it_loads(tmp_path: Path, content: str) -> None:
    model = copy_of_demo(tmp_path)
    (model / "tokenizer.json").write_text(content)
    (model / "model.safetensors").write_bytes(b"not reached")
    with pytest.raises(InvalidRequestError, match=r"tokenizer.json cannot be read: .* --tokenizer"):
        LLM(str(model), device="cpu")


def test_the_checks_need_no_torch() -> None:
    code = (
        "import sys; from yaie.runtime.startup import preflight; "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_context_that_was_asked_for_has_its_cache_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default a CPU's cache is small; a length that is written has to be had."""
    monkeypatch.setattr(capacity, "CPU_CACHE_BYTES", 2**20)
    for asked, length in ((None, 160), (2000, 2000)):
        with LLM("builtin://yaie-demo", device="cpu", max_model_len=asked) as llm:
            assert llm.info.max_model_len == length
