"""A real `Machine` in a temporary folder, and ways to wait for it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from yaie_local import kinds
from yaie_local.kubelet.pod_worker import BackOff
from yaie_local.kubelet.processes import start_time
from yaie_local.kubelet.publish import Published
from yaie_local.machine import Machine, Settings
from yaie_local.objects import Ref, is_true, name_of
from yaie_local.state import StateFolder

FAST = BackOff(base_s=0.1, max_s=0.4)
ENVIRON = {"PATH": "/usr/bin:/bin", "INHERITED": "yes"}


@contextlib.asynccontextmanager
async def machine_in(
    folder: Path, *, published: Published | None = None, **settings: Any
) -> AsyncIterator[Machine]:
    given = {"back_off": FAST, "environ": ENVIRON, "gpu_ids": (), **settings}
    state = StateFolder(folder)
    async with Machine.open(state, settings=Settings(**given), published=published) as machine:
        yield machine


async def until(fact: Callable[[], Any], *, timeout_s: float = 20.0) -> Any:
    """The first true value of `fact`; fails with its text when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not (found := fact()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
    return found


def apply(machine: Machine, *objects: Any) -> None:
    for item in objects:
        machine.verbs.apply(item, manager="test", force=True)


def pods(machine: Machine, **labels: str) -> list[Any]:
    return list(machine.verbs.store.list(kinds.PODS.kind, labels=labels))


def ready(machine: Machine, **labels: str) -> list[str]:
    return [name_of(p) for p in pods(machine, **labels) if is_true(p, "Ready")]


def get(machine: Machine, kind: str, name: str, api_version: str = "v1") -> Any:
    return machine.verbs.store.get(Ref(api_version, kind, "default", name))


def container(pod: Any) -> Any:
    """The container status of a pod, {} before there is one."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return statuses[0]


def recorded_pids(folder: Path) -> list[int]:
    """Pids of the processes that the machine in `folder` says it runs."""
    import json

    return [json.loads(p.read_text())["pid"] for p in folder.glob("pods/*/process.json")]


def is_running(pid: int) -> bool:
    """One that init has not reaped yet has ended too."""
    return start_time(pid) is not None
