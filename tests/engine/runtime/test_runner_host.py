"""Containers' limits are what counts, not the node."""

import os
from pathlib import Path

import pytest

from yaie.core.kv_cache.spec import KVCacheGroup, KVSpec
from yaie.layers.options import TensorOptions
from yaie.runtime import host
from yaie.runtime.startup import memory
from yaie_api.engine_config import EngineConfig


@pytest.mark.parametrize(
    ("content", "cores"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None), ("5 0", None)],
)
def test_cores_follow_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, cores: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    (tmp_path / "cpu.max").write_text(content + "\n")
    assert host.usable_cores(tmp_path) == (cores or 16)


def test_memory_follows_the_limit(tmp_path: Path) -> None:
    whole = host.usable_memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert host.usable_memory_bytes(tmp_path) == whole
    (tmp_path / "memory.max").write_text("1000000\n")
    assert host.usable_memory_bytes(tmp_path) == 1_000_000


def test_free_memory_is_what_the_kernel_and_the_container_leave(tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\nSwapFree: 10 kB\n")
    assert host.available_memory_bytes(tmp_path, told) == 60 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("30000\n")
    assert host.available_memory_bytes(tmp_path, told) == 60 * 1024
    (tmp_path / "memory.max").write_text("40000\n")
    assert host.available_memory_bytes(tmp_path, told) == 10_000
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 2000\nactive_file 3000\n")
    assert host.available_memory_bytes(tmp_path, told) == 15_000
    assert host.available_memory_bytes(Path("/nowhere"), Path("/nowhere")) > 2**20


class OnTheCpu:
    """As much of a model as sizing the cache looks at."""

    def __init__(self, options: TensorOptions) -> None:
        self.options = options


@pytest.mark.parametrize(
    ("usable", "tokens", "pages"),
    [(2**40, None, 2**30 // 16384), (2**30, None, 2**28 // 16384), (2**30, 100, 7)],
)
def test_the_cpu_cache_leaves_a_small_container_room(
    monkeypatch: pytest.MonkeyPatch, usable: int, tokens: int | None, pages: int
) -> None:
    import torch

    monkeypatch.setattr(memory, "usable_memory_bytes", lambda: usable)
    spec = KVSpec(groups=(KVCacheGroup("full", (0,), 1024),), page_size=16)
    model = OnTheCpu(TensorOptions(torch.device("cpu"), torch.float32))
    config = EngineConfig(model="m", kv_cache_tokens=tokens)
    found = memory.num_pages(config, model, spec, max_model_len=2**20, step_tokens=512)
    assert found == pages + 1
