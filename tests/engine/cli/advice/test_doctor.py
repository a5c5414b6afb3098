"""`yaie doctor`: what each check makes of what it reads, by cases, and how checks are run."""

import asyncio
import json
import resource
import time
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from yaie.cli.advice import gpus
from yaie.cli.advice.checking import installation, machine, report, software, workloads
from yaie.cli.advice.checking.report import Check, Finding, ok
from yaie.cli.advice.checking.software import Torch
from yaie.cli.advice.gpus import InstalledGPU
from yaie.cli.advice.place import ForbiddenError
from yaie.cli.main import main
from yaie_api import __version__
from yaie_api.errors import UnavailableError
from yaie_api.resource import crd

GIB = 2**30
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
H100 = InstalledGPU("NVIDIA H100", 80 * GIB, 79 * GIB, "580.1")
BUSY = InstalledGPU("NVIDIA H100", 80 * GIB, 5 * GIB, "580.1")


def run(*checks: Check, limit_s: float = 1.0) -> list[Finding]:
    return asyncio.run(report.run(checks, limit_s=limit_s))


def test_checks_run_side_by_side_and_keep_their_order() -> None:
    async def slow(name: str) -> Finding:
        await asyncio.sleep(0.2)
        return ok(name, "done")

    began = time.monotonic()
    found = run(*(Check(name, lambda name=name: slow(name)) for name in "abcd"))  # type: ignore[misc]
    assert time.monotonic() - began < 0.6
    assert [one.name for one in found] == list("abcd")


def test_a_check_that_hangs_ends_in_time_and_so_does_the_command() -> None:
    began = time.monotonic()
    (found,) = run(report.here("disk", lambda: time.sleep(30)), limit_s=0.1)  # type: ignore[arg-type, func-returns-value]
    assert time.monotonic() - began < 5
    assert (found.level, found.message) == ("warn", "no answer within 0.1 s")


def test_what_may_not_be_read_is_a_warning_and_silence_a_failure() -> None:
    async def raises(error: Exception) -> Finding:
        raise error

    denied, silent = run(
        Check("a", lambda: raises(ForbiddenError("nodes is forbidden"))),
        Check("b", lambda: raises(UnavailableError("no answer"))),
    )
    assert (denied.level, denied.message) == ("warn", "nodes is forbidden")
    assert silent.level == "fail"


def test_findings_are_told_with_what_to_do() -> None:
    found = [ok("a", "fine"), report.fail("b", "broken", "mend it")]
    assert report.lines("Here", found) == [
        "Here",
        "  ok    a                 fine",
        "  fail  b                 broken",
        "                          -> mend it",
    ]
    assert report.total(found) == "1 failure, 0 warnings."
    assert report.total(found[:1]) == "Nothing is missing."


@pytest.mark.parametrize(
    ("found", "driver", "cards", "level"),
    [
        (None, 13000, [H100], "skip"),
        (Torch("2.11.0", ""), None, [], "ok"),
        (Torch("2.11.0+cu130", "13.0"), 13000, [H100], "ok"),
        (Torch("2.11.0+cu130", "13.0"), 13020, [H100], "ok"),
        (Torch("2.11.0+cu130", "13.0"), 12080, [H100], "fail"),
        (Torch("2.11.0+cu130", "13.0"), None, [H100], "fail"),
        (Torch("2.11.0+cpu", ""), 13000, [H100], "fail"),
    ],
)
def test_torch_has_to_match_the_driver(
    found: Torch | None, driver: int | None, cards: list[InstalledGPU], level: str
) -> None:
    assert software.judge_torch(found, driver, cards).level == level


@pytest.mark.parametrize(
    ("cards", "has_devices", "level", "words"),
    [
        ([], False, "ok", "none: models run on the CPU here"),
        ([], True, "fail", "nvidia-smi does not list them"),
        ([H100], True, "ok", "NVIDIA H100 (79.0 of 80.0 GiB free), driver 580.1"),
        ([BUSY], True, "warn", "none has the share of 0.9 free"),
        ([BUSY, H100], True, "ok", "5.0 of 80.0 GiB free"),
    ],
)
def test_gpus_in_use_are_told(
    cards: list[InstalledGPU], has_devices: bool, level: str, words: str
) -> None:
    found = software.judge_gpus(cards, has_devices=has_devices)
    assert (found.level, words in found.message) == (level, True), found


def test_nvidia_smi_is_read_line_by_line() -> None:
    text = "NVIDIA H100 80GB HBM3, 81559, 80000, 580.65.06\nbroken line\nX, [N/A], 1, 2\n"
    assert gpus.parsed(text) == [
        InstalledGPU("NVIDIA H100 80GB HBM3", 81559 * 2**20, 80000 * 2**20, "580.65.06")
    ]


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (software.judge_packages([], []), "ok"),
        (software.judge_packages(["torch"], ["kopf"]), "warn"),
        (software.judge_packages([], ["kubernetes"]), "warn"),
        (machine.judge_memory(8 * GIB, 4), "ok"),
        (machine.judge_memory(GIB, 4), "warn"),
        (machine.judge_shared_memory(GIB, writable=True), "ok"),
        (machine.judge_shared_memory(64 * 2**20, writable=True), "warn"),
        (machine.judge_shared_memory(GIB, writable=False), "fail"),
        (machine.judge_shared_memory(None, writable=False), "fail"),
        (machine.judge_open_files(65536, 65536), "ok"),
        (machine.judge_open_files(resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok"),
        (machine.judge_open_files(1024, 524288), "warn"),
        (machine.judge_cache(Path("/c"), 10**12, writable=True), "ok"),
        (machine.judge_cache(Path("/c"), 10**10, writable=True), "warn"),
        (machine.judge_cache(Path("/c"), 10**8, writable=True), "fail"),
        (machine.judge_cache(Path("/c"), 10**12, writable=False), "fail"),
        (machine.judge_hub({"HF_HUB_OFFLINE": "1"}, lambda _: "down"), "skip"),
        (machine.judge_hub({}, lambda _: "no such name"), "warn"),
        (machine.judge_hub({}, lambda _: ""), "ok"),
    ],
)
def test_what_a_machine_lacks(found: Finding, level: str) -> None:
    assert found.level == level
    assert bool(found.todo) is (level in ("warn", "fail"))


def test_the_limit_of_files_can_be_raised_only_up_to_the_hard_one() -> None:
    assert machine.judge_open_files(1024, 524288).todo == "ulimit -n 65536"
    assert machine.judge_open_files(1024, 2048).todo == "ulimit -n 2048"
    assert "hard limit" in machine.judge_open_files(1024, 1024).todo


@pytest.mark.parametrize(
    ("version", "level"),
    [("v1.30.0", "ok"), ("v1.34.2+k3s1", "ok"), ("v1.29.9", "fail"), ("what", "warn")],
)
def test_the_version_of_the_cluster(version: str, level: str) -> None:
    assert installation.judge_version({"gitVersion": version}).level == level


def stored_crd() -> dict[str, Any]:
    """Our CRD as an API server has it: established, its numbers whole."""
    stored = deepcopy(dict(crd.render()))
    stored["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return json.loads(json.dumps(stored))  # type: ignore[no-any-return]


def spec_of(stored: dict[str, Any]) -> dict[str, Any]:
    schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"])["properties"]  # type: ignore[no-any-return]


def test_our_own_type_is_ours() -> None:
    found = installation.judge_crd(stored_crd())
    assert (found.level, found.message) == (
        "ok",
        f"yaie.dev/v1alpha1, the schema of yaie {__version__}",
    )


def test_a_type_of_another_release_says_where_it_differs() -> None:
    old = stored_crd()
    del spec_of(old)["suspend"]
    spec_of(old)["replicas"]["maximum"] = 7
    spec_of(old)["routing"]["description"] = "other words"
    found = installation.judge_crd(old)
    assert found.level == "warn"
    assert "spec.suspend is missing there" in found.message
    assert "spec.replicas.maximum differs" in found.message
    assert "routing" not in found.message


def test_a_type_that_is_not_served_is_a_failure() -> None:
    waiting = stored_crd() | {"status": {}}
    assert installation.judge_crd(waiting).level == "fail"
    other = stored_crd()
    other["spec"]["versions"][0]["name"] = "v2"
    assert installation.judge_crd(other).level == "fail"


def deployment(ready: int = 1, version: str = __version__) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "yaie-system", "labels": {"app.kubernetes.io/version": version}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "i:1"}]}}},
        "status": {"availableReplicas": ready},
    }


@pytest.mark.parametrize(
    ("deployments", "level"),
    [
        ([], "fail"),
        ([deployment(2)], "ok"),
        ([deployment(1)], "warn"),
        ([deployment(0)], "fail"),
        ([deployment(2, "0.0.1")], "warn"),
        ([deployment(2), deployment(2)], "warn"),
    ],
)
def test_the_operator_has_to_run(deployments: list[dict[str, Any]], level: str) -> None:
    assert installation.judge_operator(deployments).level == level


def lease(age_s: float, holder: str = "pod-1") -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"namespace": "yaie-system"}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (None, "fail"),
        (lease(2), "ok"),
        (lease(25), "ok"),
        (lease(300), "fail"),
        (lease(1, ""), "fail"),
    ],
)
def test_somebody_has_to_lead(found: dict[str, Any] | None, level: str) -> None:
    assert installation.judge_lease(found, NOW).level == level


def test_a_user_who_cannot_deploy_is_told_the_role() -> None:
    create, look = workloads.RIGHTS[0], workloads.RIGHTS[-1]
    assert workloads.judge_rights([], "chat").level == "ok"
    assert workloads.judge_rights([look], "chat").level == "warn"
    denied = workloads.judge_rights([create], "chat")
    assert (denied.level, "--clusterrole edit" in denied.todo) == ("fail", True)
    assert "may not create inferencemodels" in denied.message


def node(gpus: int = 0, **labels: str) -> dict[str, Any]:
    allocatable = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    name = f"n{gpus}{len(labels)}"
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("nodes", "level"),
    [
        ([node()], "warn"),
        ([node(4, **{"nvidia.com/gpu.memory": "81559"}), node()], "ok"),
        ([node(4)], "warn"),
        ([node(0, **{"nvidia.com/gpu.present": "true"})], "fail"),
    ],
)
def test_nodes_with_gpus(nodes: list[dict[str, Any]], level: str) -> None:
    assert workloads.judge_gpu_nodes(nodes).level == level


def test_a_default_storage_class() -> None:
    default = {"metadata": {"name": "fast", "annotations": {workloads.DEFAULT_CLASS: "true"}}}
    plain = {"metadata": {"name": "slow"}}
    assert workloads.judge_storage([plain, default]).message == "default StorageClass fast"
    assert workloads.judge_storage([plain]).level == "warn"
    assert "there is none at all" in workloads.judge_storage([]).message


def test_images_that_cannot_be_pulled() -> None:
    waiting = {"image": "yaie/engine:9", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pod = {"metadata": {"name": "demo-1", "namespace": "chat"},
           "status": {"containerStatuses": [waiting]}}  # fmt: skip
    found = workloads.judge_images([pod, pod])
    assert (found.level, found.message) == ("fail", "cannot be pulled: yaie/engine:9")
    assert "kubectl describe pod demo-1 -n chat" in found.todo
    assert workloads.judge_images([]).level == "ok"


def test_a_model_that_waits_is_explained_by_the_next_command() -> None:
    waits = {"metadata": {"name": "demo", "generation": 1}, "status": {}}
    found = workloads.judge_models([waits], "chat", " --context staging")
    assert (found.level, found.todo) == ("warn", "yaie explain demo -n chat --context staging")
    assert workloads.judge_models([], "chat", "").level == "ok"


def test_the_command_looks_at_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    status = main(["doctor", "--no-cluster", "-o", "json"])
    found = json.loads(capsys.readouterr().out)["This machine"]
    levels = {one["name"]: one["level"] for one in found}
    assert levels["Python"] == levels["packages"] == "ok"
    assert levels["hub"] == "skip"
    assert status == int("fail" in levels.values())
    assert main(["doctor", "--no-cluster"]) == status
    assert "  skip  hub               HF_HUB_OFFLINE is set" in capsys.readouterr().out
