"""Jobs on this machine: what the controller decides, and real processes that end."""

import sys
from pathlib import Path
from typing import Any

from fakes.local_machine import apply, container, get, machine_in, pods, until
from fakes.local_objects import obj, owner
from yaie_local.controllers.jobs import Decision, decide, status_of
from yaie_local.kubelet.volumes import in_use
from yaie_local.machine import Machine

NOW = 1_000_000.0
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


def job(*code: str, policy: str = "OnFailure", **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "none", "command": [sys.executable, "-c", *code]}
    pod = {"restartPolicy": policy, "containers": [main], "volumes": [CLAIM]}
    template = {"metadata": {"labels": {"job": "j"}}, "spec": pod}
    return obj("Job", "j", apiVersion="batch/v1", spec={"template": template, **spec})


def pod(phase: str) -> Any:
    return obj("Pod", f"p-{phase.lower()}", status={"phase": phase})


def stored(machine: Machine) -> Any:
    return get(machine, "Job", "j", "batch/v1").get("status", {})


def conditions(machine: Machine) -> set[str]:
    return {c["type"] for c in stored(machine).get("conditions", ())}


def test_a_job_has_one_pod_until_one_has_succeeded() -> None:
    assert decide(job(), []) == Decision(create=True)
    assert decide(job(), [pod("Running")]) == Decision()
    assert decide(job(), [pod("Failed")]) == Decision(create=True)
    assert decide(job(), [pod("Succeeded")]) == Decision()
    assert decide(job(backoffLimit=0), [pod("Failed")]) == Decision()
    assert decide(job(suspend=True), [pod("Running")]) == Decision(delete=("p-running",))


def test_a_job_that_has_ended_stays_so_without_its_pods() -> None:
    ended = {**job(), "status": status_of(job(), [pod("Succeeded")], now=NOW)}
    assert ended["status"]["conditions"][0]["type"] == "Complete"
    assert status_of(ended, [], now=NOW + 1) == ended["status"]
    assert decide(ended, []) == Decision()
    failed = status_of(job(backoffLimit=0), [pod("Failed")], now=NOW)
    assert failed["conditions"][0]["type"] == "Failed"


def test_a_claim_is_in_use_until_the_pods_that_mount_it_have_ended() -> None:
    claim = obj("PersistentVolumeClaim", "c")
    spec = {"volumes": [CLAIM]}
    assert in_use(claim, [{**pod("Running"), "spec": spec}])
    assert not in_use(claim, [{**pod("Succeeded"), "spec": spec}])
    assert not in_use(obj("PersistentVolumeClaim", "d"), [{**pod("Running"), "spec": spec}])


async def test_a_container_that_fails_is_started_again_in_its_pod(tmp_path: Path) -> None:
    code = "import pathlib,sys; p=pathlib.Path('once'); e=p.exists(); p.touch(); sys.exit(not e)"
    async with machine_in(tmp_path) as machine:
        apply(machine, job(code))
        await until(lambda: conditions(machine) == {"Complete"})
        (one,) = pods(machine)
        assert one["status"]["phase"] == "Succeeded"
        assert container(one)["restartCount"] == 1
        assert container(one)["state"]["terminated"]["exitCode"] == 0
    async with machine_in(tmp_path) as machine:
        await until(lambda: not pods(machine))
        assert conditions(machine) == {"Complete"}  # it is not run again


async def test_with_policy_never_other_pods_follow_to_the_limit(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, job("raise SystemExit(3)", policy="Never", backoffLimit=1))
        await until(lambda: conditions(machine) == {"Failed"})
        assert [one["status"]["phase"] for one in pods(machine)] == ["Failed", "Failed"]
        machine.verbs.delete(get(machine, "Job", "j", "batch/v1"))
        await until(lambda: not pods(machine))


async def test_a_suspended_job_ends_its_pod_and_goes_on_later(tmp_path: Path) -> None:
    slow = job("import time; time.sleep(60)")
    async with machine_in(tmp_path) as machine:
        apply(machine, slow)
        await until(lambda: stored(machine).get("active"))
        apply(machine, job("import time; time.sleep(60)", suspend=True))
        await until(lambda: not pods(machine))
        apply(machine, job("import time; time.sleep(60)", suspend=False))
        await until(lambda: len(pods(machine)) == 1)


async def test_the_folder_of_a_claim_goes_with_its_owner(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, obj("ConfigMap", "parent"))
        parent = get(machine, "ConfigMap", "parent")
        mine = {"ownerReferences": [owner(parent)]}
        apply(machine, obj("PersistentVolumeClaim", "c", metadata=mine, spec={}))
        full = job("pass")
        apply(machine, {**full, "metadata": full["metadata"] | mine})
        folder = tmp_path / "volumes" / "default" / "c"
        await until(folder.exists)
        machine.verbs.delete(parent)
        await until(lambda: not folder.exists())
        assert get(machine, "PersistentVolumeClaim", "c") is None
