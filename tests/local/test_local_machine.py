"""Deployments on this machine with real child processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.local_machine import (
    apply,
    container,
    get,
    is_running,
    machine_in,
    pods,
    ready,
    recorded_pids,
    until,
)
from fakes.local_objects import deployment, obj, owner, service
from yaie_local.machine import Machine
from yaie_local.objects import condition, is_true, name_of, uid_of
from yaie_local.state import StateError
from yaie_operator.cluster import RefusedError


def address(machine: Machine) -> str:
    (one,) = pods(machine)
    return str(one["status"]["podIP"])


def deployment_status(machine: Machine) -> Any:
    return get(machine, "Deployment", "web", "apps/v1").get("status", {})


def ready_endpoints(machine: Machine) -> list[Any]:
    found = get(machine, "EndpointSlice", "web-local", "discovery.k8s.io/v1") or {"endpoints": []}
    return [e for e in found["endpoints"] if e["conditions"]["ready"]]


def logs_in(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("logs/*.log"))


async def fetch(machine: Machine, path: str = "/env") -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address(machine)}:8000{path}") as response,
    ):
        return json.loads(await response.read())


async def test_a_deployment_becomes_ready_and_leaves_no_process(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(), service())
        await until(lambda: ready(machine))
        await until(lambda: deployment_status(machine).get("availableReplicas") == 1)
        (endpoint,) = await until(lambda: ready_endpoints(machine))
        assert endpoint["addresses"][0].startswith("127.1.")
        (pid,) = recorded_pids(tmp_path)
        assert is_running(pid)
    assert not is_running(pid)
    assert "ending politely" in logs_in(tmp_path)


async def test_a_process_gets_its_environment(tmp_path: Path) -> None:
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "t"}}},
        {"name": "BOTH", "value": "$(POD)/$(TOKEN)"},
    ]
    async with machine_in(tmp_path, gpu_ids=("0", "1")) as machine:
        limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        apply(machine, obj("Secret", "s", stringData={"t": "x"}))
        apply(machine, deployment(container={"env": env, **limits}))
        await until(lambda: ready(machine))
        seen = await fetch(machine)
        assert seen["BOTH"] == f"{name_of(pods(machine)[0])}/x"
        assert seen["INHERITED"] == "yes"
        assert seen["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert seen["YAIE_API_SOCKET"] == str(machine.state.socket)


async def test_a_crash_is_restarted_with_back_off_and_told(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(flags=("--exit-after", "0.2", "--exit-code", "7")))
        await until(
            lambda: (
                container(pods(machine)[0]).get("restartCount", 0) >= 2 if pods(machine) else False
            )
        )
        told = await until(lambda: container(pods(machine)[0])["state"].get("waiting"))
        assert told["reason"] == "CrashLoopBackOff"
        assert "ended with 7: started --host 127.1." in told["message"]
        assert container(pods(machine)[0])["lastState"]["terminated"]["exitCode"] == 7


async def test_what_a_process_leaves_in_its_termination_log_is_why_it_ended(tmp_path: Path) -> None:
    env = [{"name": "YAIE_TERMINATION_LOG", "value": "/dev/termination-log"}]
    flags = ("--exit-after", "0.1", "--last-words", "there is no such model")
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(flags=flags, container={"env": env}))
        told = await until(lambda: pods(machine) and last_end(machine))
        assert told["message"] == "there is no such model"


async def test_one_that_fails_silently_is_not_explained_by_the_output_of_its_last_start(
    tmp_path: Path,
) -> None:
    flags = ("--exit-after", "0.1", "--once", str(tmp_path / "once"))
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(flags=flags))
        first = await until(lambda: pods(machine) and last_end(machine))
        assert "only once" in first["message"]
        second = await until(
            lambda: (
                last_end(machine)
                if container(pods(machine)[0]).get("restartCount", 0) >= 2
                else None
            )
        )
        assert "only once" not in second["message"]


def last_end(machine: Machine) -> Any:
    return container(pods(machine)[0]).get("lastState", {}).get("terminated")


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(flags=("--deaf",), pod={"terminationGracePeriodSeconds": 1}))
        await until(lambda: ready(machine))
        (pid,) = recorded_pids(tmp_path)
        began = time.monotonic()
        apply(machine, deployment(replicas=0))
        await until(lambda: not pods(machine))
        assert 0.9 < time.monotonic() - began < 5
        assert not is_running(pid)


async def test_a_failing_liveness_probe_restarts_the_process(tmp_path: Path) -> None:
    flag = tmp_path / "dead"
    probe = {"httpGet": {"path": "/livez", "port": 8000}, "periodSeconds": 0.1}
    async with machine_in(tmp_path / "state") as machine:
        flags = ("--dead-file", str(flag))
        start = {"httpGet": {"path": "/readyz", "port": 8000}, "periodSeconds": 1}
        probes = {"livenessProbe": probe, "startupProbe": {**start, "failureThreshold": 30}}
        apply(machine, deployment(flags=flags, container=probes))
        await until(lambda: ready(machine))
        flag.touch()
        last = await until(lambda: container(pods(machine)[0])["lastState"].get("terminated"))
        assert "liveness probe failed 3 times: HTTP 500" in last["message"]
        flag.unlink()
        await until(lambda: ready(machine))


async def test_a_start_that_takes_too_long_is_begun_again(tmp_path: Path) -> None:
    probe = {
        "httpGet": {"path": "/readyz", "port": "http"},
        "periodSeconds": 0.2,
        "failureThreshold": 3,
    }
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(flags=("--ready-after", "60"), container={"startupProbe": probe}))
        await until(lambda: pods(machine))
        last = await until(
            lambda: container(pods(machine)[0]).get("lastState", {}).get("terminated")
        )
        assert "startup probe failed for 0.6 s" in last["message"]


async def test_a_missing_secret_is_named_until_it_is_there(tmp_path: Path) -> None:
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(container={"env": env}))
        await until(lambda: pods(machine))
        waiting = await until(lambda: container(pods(machine)[0]).get("state", {}).get("waiting"))
        if waiting["reason"] == "ContainerCreating":
            waiting = await until(
                lambda: (
                    "message" in container(pods(machine)[0])["state"].get("waiting", {})
                    and container(pods(machine)[0])["state"]["waiting"]
                )
            )
        assert waiting["reason"] == "CreateContainerConfigError"
        assert 'no Secret "hf" in this namespace' in waiting["message"]
        apply(machine, obj("Secret", "hf", stringData={"token": "x"}))
        await until(lambda: ready(machine))


async def test_a_rolling_update_never_loses_the_ready_endpoint(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(replicas=2), service())
        await until(lambda: len(ready(machine)) == 2)
        before = set(ready(machine))
        low = 2

        def watch() -> None:
            nonlocal low
            low = min(low, len(ready_endpoints(machine)))

        await until(lambda: len(ready_endpoints(machine)) == 2)
        machine.verbs.store.subscribe(watch)
        apply(machine, deployment(replicas=2, flags=("--ready-after", "0.2")))
        await until(lambda: not before & {name_of(p) for p in pods(machine)})
        await until(lambda: len(ready(machine)) == 2)
        assert low == 2


async def test_a_pod_is_ready_when_its_readiness_gate_is_open(tmp_path: Path) -> None:
    gates = {"readinessGates": [{"conditionType": "yaie.dev/routed"}]}
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(pod=gates), service())
        await until(lambda: pods(machine) and condition(pods(machine)[0], "ContainersReady"))
        await until(lambda: is_true(pods(machine)[0], "ContainersReady"))
        assert not ready(machine)
        told = condition(pods(machine)[0], "Ready")
        assert told is not None
        assert told["reason"] == "ReadinessGatesNotReady"
        opened = {"type": "yaie.dev/routed", "status": "True"}
        await machine.cluster.set_pod_condition(pods(machine)[0], opened)
        await until(lambda: ready(machine) and ready_endpoints(machine))


async def test_scaling_up_and_down_changes_the_number_of_processes(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment(replicas=1))
        await until(lambda: len(ready(machine)) == 1)
        apply(machine, deployment(replicas=3))
        await until(lambda: len(ready(machine)) == 3)
        assert len(recorded_pids(tmp_path)) == 3
        apply(machine, deployment(replicas=1))
        await until(lambda: len(pods(machine)) == 1)
        assert len(ready(machine)) == 1
        assert len(recorded_pids(tmp_path)) == 1


async def test_a_pod_waits_for_a_gpu_and_gets_it_when_one_is_free(tmp_path: Path) -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    async with machine_in(tmp_path, gpu_ids=("GPU-a",)) as machine:
        apply(machine, deployment("one", container=gpu))
        await until(lambda: ready(machine, app="one"))
        apply(machine, deployment("two", container=gpu))
        waiting = await until(
            lambda: next(
                (c for p in pods(machine, app="two") if (c := condition(p, "PodScheduled"))), None
            )
        )
        assert waiting["reason"] == "Unschedulable"
        assert "0 of 1 free (held by one-" in waiting["message"]
        apply(machine, deployment("one", replicas=0, container=gpu))
        await until(lambda: ready(machine, app="two"))


async def test_deleting_the_owner_ends_everything_below_it(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, obj(name="parent"))
        parent = get(machine, "ConfigMap", "parent")
        child = deployment()
        child["metadata"]["ownerReferences"] = [owner(parent)]
        apply(machine, child)
        await until(lambda: ready(machine))
        (pid,) = recorded_pids(tmp_path)
        machine.verbs.delete(parent)
        await until(lambda: not pods(machine))
        assert get(machine, "Deployment", "web", "apps/v1") is None
        assert not is_running(pid)


async def test_empty_dirs_die_with_the_pod_and_claims_stay(tmp_path: Path) -> None:
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    mounts = [{"name": "tmp", "mountPath": "/scratch"}, {"name": "data", "mountPath": "/data"}]
    env = [{"name": "YAIE_MODEL_FOLDER", "value": "/data"}]
    async with machine_in(tmp_path) as machine:
        given = {"volumeMounts": mounts, "env": env}
        apply(machine, deployment(container=given, pod={"volumes": volumes}))
        await until(lambda: ready(machine))
        seen = await fetch(machine)
        scratch = volume_of(pods(machine)[0], "tmp", tmp_path)
        data = Path(seen["YAIE_MODEL_FOLDER"])
        assert data == tmp_path / "volumes" / "default" / "c"
        assert there(scratch, data) == (True, True)
    assert there(scratch, data) == (False, True)


def volume_of(pod: Any, name: str, state: Path) -> Path:
    return state / "pods" / uid_of(pod) / "volumes" / name


def there(*folders: Path) -> tuple[bool, ...]:
    return tuple(folder.is_dir() for folder in folders)


async def test_a_second_machine_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with machine_in(tmp_path):
        with pytest.raises(StateError, match="already uses"):
            async with machine_in(tmp_path):
                pass


async def test_the_next_run_picks_up_deployments_and_forgets_pods(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment())
        (old,) = await until(lambda: ready(machine))
    async with machine_in(tmp_path) as machine:
        (new,) = await until(lambda: ready(machine))
        assert new != old


async def test_a_sidecar_is_refused_with_a_message(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        with pytest.raises(RefusedError, match="one process"):
            apply(machine, deployment(pod={"containers": [{"name": "a"}, {"name": "b"}]}))


async def test_a_deleted_pod_is_replaced(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        apply(machine, deployment())
        (old,) = await until(lambda: ready(machine))
        machine.verbs.delete(pods(machine)[0])
        await until(lambda: ready(machine) and old not in {name_of(p) for p in pods(machine)})


async def test_shutdown_kills_what_ignores_it_after_the_grace(tmp_path: Path) -> None:
    async with machine_in(tmp_path, shutdown_grace_s=0.5) as machine:
        apply(machine, deployment(flags=("--deaf",), pod={"terminationGracePeriodSeconds": 300}))
        await until(lambda: ready(machine))
        (pid,) = recorded_pids(tmp_path)
        began = time.monotonic()
    assert 0.4 < time.monotonic() - began < 5
    assert not is_running(pid)


CRASHED_RUN = """
import asyncio, sys
from pathlib import Path
from fakes.local_machine import apply, machine_in, ready, until
from fakes.local_objects import deployment
async def main():
    async with machine_in(Path(sys.argv[1])) as machine:
        apply(machine, deployment(replicas=2))
        await until(lambda: len(ready(machine)) == 2)
        print("ready", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_orphans_of_a_killed_run_are_ended_by_the_next(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    crashed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CRASHED_RUN, str(tmp_path)), stdout=subprocess.PIPE, env=env
    )
    assert crashed.stdout is not None
    assert await crashed.stdout.readline() == b"ready\n"
    crashed.send_signal(signal.SIGKILL)
    await crashed.wait()
    orphans = recorded_pids(tmp_path)
    assert [is_running(pid) for pid in orphans] == [True, True]
    async with machine_in(tmp_path) as machine:
        assert [is_running(pid) for pid in orphans] == [False, False]
        await until(lambda: len(ready(machine)) == 2)
        assert not set(recorded_pids(tmp_path)) & set(orphans)
