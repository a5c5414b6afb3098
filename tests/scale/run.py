"""`make scale`: a thousand InferenceModels on a real API server, and what they cost the operator.

    python tests/scale/run.py [--models 1000] [--rate 20] [--namespaces 10] [--restarts 1]
                              [--output FILE]

Models are created at a rate, in segments from 10 to all of them. There is no node, so their pods
stay Pending. Latencies and requests are read from the API server's audit log, CPU time and memory
from /proc. Then the operator is restarted, as often as asked for, and must find everything as it
should be without a write: no object, no status, no Event. The control plane itself takes 0.1 s of
CPU time per model with its Deployment, ReplicaSet and pod: at 20 models per second it alone needs
two cores.
"""

import argparse
import asyncio
import contextlib
import math
import os
import sys
import tempfile
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster import binaries
from cluster import control_plane as control_planes
from cluster.audit import Request
from cluster.control_plane import ControlPlane
from cluster.operator_scene import USER, Operator, install, operator, until
from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.watch.kinds import INFERENCE_MODEL
from yaie_operator.watch.kube import path_of
from yaie_operator.watch.kube_api import KubeApi, load_configuration
from yaie_operator.watch.kube_api import Request as ApiRequest

CURVE = (10, 30, 100, 300, 1000)
QUIET_S = 4.0
"""Seconds without a write after which a segment has settled."""
SETTLES_S = 240.0
ASK_S = 0.5
RESYNC = ("--resync-seconds", "60")
"""The default, which the scene of other tests sets to an hour."""
TICKS = os.sysconf("SC_CLK_TCK")

MOST_LATENCY_S = 5.0
MOST_REQUESTS = 6.0
MOST_CPU_MS = 15.0
MOST_MEMORY_MIB = 250.0
MOST_RESTART_S = 10.0


@dataclass(frozen=True)
class Segment:
    """What one part of the curve showed. Requests and CPU time are per new model."""

    models: int
    latencies_s: Sequence[float]
    requests: float
    cpu_ms: float
    memory_mib: float
    kinds: Counter[str]
    others_ms: float
    """CPU time of the control plane per new model."""

    def latency_s(self, share: float) -> float:
        return sorted(self.latencies_s)[math.ceil(share * len(self.latencies_s)) - 1]


@dataclass(frozen=True)
class Restart:
    """What a restart beside all models showed."""

    steady_s: float
    writes: int
    memory_mib: float
    cpu_s: float


class Fleet:
    """A control plane with an operator and the models created so far."""

    def __init__(self, control_plane: ControlPlane, namespaces: int, rate: float) -> None:
        self.control_plane = control_plane
        self.spaces = [control_plane.new_namespace("fleet") for _ in range(namespaces)]
        self.rate = rate
        self.created = 0

    async def grow_to(self, models: int) -> None:
        """Create models until there are so many, at the rate."""
        api = KubeApi(await load_configuration(str(self.control_plane.kubeconfig)))
        began, first = time.monotonic(), self.created
        try:
            async with asyncio.TaskGroup() as group:
                while self.created < models:
                    due_s = (self.created - first) / self.rate
                    await asyncio.sleep(max(0.0, began + due_s - time.monotonic()))
                    group.create_task(self._create(api, self.created))
                    self.created += 1
        finally:
            await api.close()

    async def _create(self, api: KubeApi, number: int) -> None:
        namespace = self.spaces[number % len(self.spaces)]
        model = inference_model(f"m{number}")
        model["metadata"]["namespace"] = namespace
        await api.send(ApiRequest("POST", path_of(INFERENCE_MODEL, namespace=namespace), (), model))

    def requests_since(self, mark: int) -> list[Request]:
        assert self.control_plane.audit is not None
        return self.control_plane.audit.requests_since(mark, user=USER)

    def settle(self, running: Operator) -> None:
        """Wait until the operator has nothing to do and has not written for a while: one that gets
        no CPU, or is in the middle of a full list, does not write either.
        """
        audit = self.control_plane.audit
        assert audit is not None
        deadline = time.monotonic() + SETTLES_S
        while True:
            mark = audit.mark()
            time.sleep(QUIET_S)
            is_idle = asked(running, "yaie_operator_queue_depth") == 0.0
            if is_idle and not audit.writes_since(mark, user=USER):
                return
            assert time.monotonic() < deadline, "the operator does not come to rest"


def measure(fleet: Fleet, running: Operator, models: int) -> Segment:
    """Grow to so many models and wait for rest."""
    audit = fleet.control_plane.audit
    assert audit is not None
    before, mark, cpu_s = fleet.created, audit.mark(), cpu_of(running.daemon.pid)
    all_s = cpu_of_children()
    asyncio.run(fleet.grow_to(models))
    fleet.settle(running)
    spent_s = cpu_of(running.daemon.pid) - cpu_s
    asked = [r for r in fleet.requests_since(mark) if r.resource != "leases" and r.verb != "watch"]
    new = models - before
    return Segment(
        models=models,
        latencies_s=latencies(audit.writes_since(mark)),
        requests=len(asked) / new,
        cpu_ms=spent_s / new * 1000.0,
        memory_mib=memory_of(running.daemon.pid),
        kinds=Counter(f"{r.verb} {r.resource} {r.code}" for r in asked),
        others_ms=(cpu_of_children() - all_s - spent_s) / new * 1000.0,
    )


def latencies(writes: Sequence[Request]) -> list[float]:
    """Seconds from the answer to a model's creation to the answer to its Deployment's."""
    created = {
        (write.namespace, write.name): write.at
        for write in writes
        if (write.verb, write.resource) == ("create", names.PLURAL)
    }
    reached: dict[tuple[str, str], float] = {}
    for write in writes:
        who = (write.namespace, write.name)
        if write.user == USER and write.resource == "deployments" and who in created:
            reached.setdefault(who, write.at)
    assert reached.keys() == created.keys(), "not every model has a Deployment"
    return [reached[who] - at for who, at in created.items()]


def restart(fleet: Fleet, kubeconfig: Path, folder: Path, number: int) -> Restart:
    """Start a new operator beside all models; steady: it has looked at each of them. Its writes
    count from its start to some seconds after that.
    """
    audit = fleet.control_plane.audit
    assert audit is not None
    mark, began = audit.mark(), time.monotonic()
    with operator(kubeconfig, folder, f"restart-{number}", *RESYNC) as running:
        until(lambda: reconciled(running) >= fleet.created, timeout_s=SETTLES_S)
        steady_s, cpu_s = time.monotonic() - began, cpu_of(running.daemon.pid)
        time.sleep(QUIET_S)
        writes = audit.writes_since(mark, user=USER)
        for write in writes:
            print("needless write:", write, flush=True)
        return Restart(steady_s, len(writes), memory_of(running.daemon.pid), cpu_s)


def reconciled(running: Operator) -> float:
    """How often a model has been reconciled. The metrics of a thousand models are long: who asks
    for them all the time measures the asking.
    """
    time.sleep(ASK_S)
    if not running.says("probes and metrics"):
        return 0.0
    return asked(running, 'yaie_operator_reconciles_total{result="ok",scope="model"}') or 0.0


def asked(running: Operator, sample: str) -> float | None:
    """A sample of the operator's metrics; None: it is too busy to answer."""
    try:
        return running.metric(sample)
    except (TimeoutError, urllib.error.URLError):
        return None


def cpu_of(pid: int) -> float:
    """Seconds of CPU time, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_of_children() -> float:
    """Seconds of CPU time of all programs that this one has started."""
    status = Path("/proc").glob("[0-9]*/status")
    ours = (p.parent.name for p in status if f"PPid:\t{os.getpid()}\n" in p.read_text())
    return sum(cpu_of(int(pid)) for pid in ours)


def memory_of(pid: int) -> float:
    """Resident MiB at the highest so far."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024.0


@contextlib.contextmanager
def running_fleet(namespaces: int, rate: float) -> Iterator[tuple[Fleet, Path, Path]]:
    """A control plane of its own: the fleet, the operator's kubeconfig, a folder for logs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with control_planes.run(folder / "cluster", binaries.folder()) as (control_plane, _):
            kubeconfig = install(control_plane, folder)
            yield Fleet(control_plane, namespaces, rate), kubeconfig, folder


def told_of(one: Segment) -> str:
    """A segment as a row of the table."""
    return (
        f"| {one.models} | {one.latency_s(0.5):.2f} s, {one.latency_s(0.99):.2f} s | "
        f"{one.requests:.2f} | {one.cpu_ms:.1f} ms ({one.others_ms:.0f} ms) | "
        f"{one.memory_mib:.0f} MiB |"
    )


def table(segments: Sequence[Segment], restarts: Sequence[Restart]) -> str:
    rows = [
        "| models | create → Deployment p50, p99 | requests | CPU (control plane) | memory |",
        "|---|---|---|---|---|",
    ]
    rows += map(told_of, segments)
    last = ", ".join(f"{n} of {what}" for what, n in segments[-1].kinds.most_common())
    told = (
        f"{len(restarts)} restarts beside {segments[-1].models} models: every model looked at "
        f"after {median(one.steady_s for one in restarts):.1f} s in the middle and "
        f"{max(one.steady_s for one in restarts):.1f} s at most "
        f"({median(one.cpu_s for one in restarts):.1f} s of CPU), "
        f"{sum(one.writes for one in restarts)} writes in all, "
        f"at most {max(one.memory_mib for one in restarts):.0f} MiB."
    )
    return "\n".join([*rows, "", told, f"Requests of the last segment: {last}."])


def verdict(segments: Sequence[Segment], restarts: Sequence[Restart]) -> dict[str, bool]:
    """What must hold, of the largest segment."""
    last = segments[-1]
    return {
        f"create → Deployment p99 < {MOST_LATENCY_S:g} s": last.latency_s(0.99) < MOST_LATENCY_S,
        f"at most {MOST_REQUESTS:g} requests per new model": last.requests <= MOST_REQUESTS,
        f"at most {MOST_CPU_MS:g} ms of CPU per new model": last.cpu_ms <= MOST_CPU_MS,
        f"memory < {MOST_MEMORY_MIB:g} MiB": last.memory_mib < MOST_MEMORY_MIB,
        f"memory of a restart < {MOST_MEMORY_MIB:g} MiB at its peak": all(
            one.memory_mib < MOST_MEMORY_MIB for one in restarts
        ),
        f"restart to steady < {MOST_RESTART_S:g} s": all(
            one.steady_s < MOST_RESTART_S for one in restarts
        ),
        "a restart writes nothing": not any(one.writes for one in restarts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=CURVE[-1])
    parser.add_argument("--rate", type=float, default=20.0, help="new models per second")
    parser.add_argument("--namespaces", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=1, help="how often; at least once")
    parser.add_argument("--output", type=Path, help="file that the table is appended to")
    chosen = parser.parse_args()
    sizes = [*(size for size in CURVE if size < chosen.models), chosen.models]
    with running_fleet(chosen.namespaces, chosen.rate) as (fleet, kubeconfig, folder):
        with operator(kubeconfig, folder, "first", *RESYNC) as running:
            segments = []
            for size in sizes:
                segments.append(measure(fleet, running, size))
                print(told_of(segments[-1]), flush=True)
        restarts = []
        for number in range(max(1, chosen.restarts)):
            restarts.append(restart(fleet, kubeconfig, folder, number))
            print(f"restart {number + 1}: {restarts[-1]}", flush=True)
    told = table(segments, restarts)
    print(told)
    if chosen.output:
        with chosen.output.open("a") as file:
            file.write(f"{told}\n")
    checks = verdict(segments, restarts)
    for name, held in checks.items():
        print("ok  " if held else "FAIL", name)
    return int(not all(checks.values()))


if __name__ == "__main__":
    sys.exit(main())
