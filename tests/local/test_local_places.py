"""GPUs, addresses and probes: what a pod gets and how it is looked at."""

import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.local_objects import pod
from yaie_local.kubelet import gpus, probes
from yaie_local.kubelet.addresses import AddressPool, ports_of
from yaie_local.kubelet.containers import ConfigError
from yaie_local.kubelet.gpus import GPUPool, detect


def test_gpus_are_the_users_choice_first() -> None:
    assert detect({"YAIE_LOCAL_GPUS": "0, 2", "CUDA_VISIBLE_DEVICES": "1"}) == ["0", "2"]
    assert detect({"YAIE_LOCAL_GPUS": ""}) == []
    assert detect({"CUDA_VISIBLE_DEVICES": "GPU-abc"}) == ["GPU-abc"]


def test_gpus_are_found_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert detect({}) == ["0", "1"]


def test_gpus_are_found_by_their_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.shutil, "which", lambda _: None)
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert detect({}, tmp_path) == ["0", "2", "10"]


def test_a_pool_gives_each_gpu_once_and_says_who_holds_it() -> None:
    pool = GPUPool(["a", "b"])
    assert pool.take("one", 1) == ["a"]
    assert pool.take("none", 0) == []
    assert pool.take("two", 2) is None
    assert "needs 2 GPU(s), 1 of 2 free (held by one)" in pool.shortage(2)
    pool.give_back("one")
    assert pool.take("two", 2) == ["a", "b"]


def test_a_machine_with_too_few_gpus_says_what_to_write() -> None:
    assert "this machine has 0; set resources.gpu.count: 0" in GPUPool([]).shortage(1)


def test_each_pod_gets_an_address_of_its_own() -> None:
    pool = AddressPool("seed")
    first, second = pool.take("a", [8000]), pool.take("b", [8000])
    assert first is not None
    assert first.startswith("127.1.")
    assert first != second


def test_an_address_whose_port_is_taken_is_skipped() -> None:
    wanted = AddressPool("skip").take("a", [18765])
    assert wanted is not None
    with socket.create_server((wanted, 18765)):
        other = AddressPool("skip").take("a", [18765])
    assert other not in (None, wanted)


def test_a_port_that_is_taken_everywhere_leaves_no_address() -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        assert AddressPool("full").take("a", [port]) is None


def test_ports_are_those_that_the_container_declares() -> None:
    assert ports_of(pod()) == [8000]


def probe_of(**spec: Any) -> probes.Probe:
    made = probes.Probe.of(pod(container={"readinessProbe": spec}), "readinessProbe")
    assert made is not None
    return made


def test_a_probe_has_kubernetes_defaults() -> None:
    probe = probe_of(httpGet={"port": "http"})
    assert (probe.port, probe.path) == (8000, "/")
    assert (probe.delay_s, probe.period_s, probe.timeout_s, probe.failures) == (0, 10, 1, 3)
    assert probe.limit_s == 30
    assert probes.Probe.of(pod(), "livenessProbe") is None


def test_a_probe_that_does_not_work_here_is_refused() -> None:
    with pytest.raises(ConfigError, match="only httpGet and tcpSocket"):
        probe_of(exec={"command": ["x"]})
    with pytest.raises(ConfigError, match='no port named "web"'):
        probe_of(httpGet={"port": "web"})


async def test_a_probe_tells_why_it_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with aiohttp.ClientSession() as session:
            slow = probe_of(httpGet={"port": port}, timeoutSeconds=0.1)
            assert await probes.failure(session, slow, "127.0.0.1") == "no answer within 0.1 s"
            tcp = probe_of(tcpSocket={"port": port})
            assert await probes.failure(session, tcp, "127.0.0.1") is None
    async with aiohttp.ClientSession() as session:
        said = await probes.failure(session, probe_of(httpGet={"port": port}), "127.0.0.1")
    assert said is not None
    assert said.startswith("cannot connect")
