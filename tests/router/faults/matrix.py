"""`make faults`: one engine of four fails in each known way under load; what clients may notice.

    PYTHONPATH=tests python -m router.faults.matrix [--clients 128] [--real] [--output FILE.md]

Starts a router and four engines as processes, lets clients stream without a pause, makes the first
engine fail for some seconds, and makes it sound again. Exits with 1 where a line is missed:

- errors: none. What the engine had begun goes on elsewhere, and says what it should;
- nobody waits for a first token longer than its deadline and a second engine's turn;
- the engine is ejected within 2 s after what its fault needs to show; a busy one never is;
- it serves again within 10 s after it is sound.

Deadlines of 30 s are set to 3 s here. `--real`: SIGSTOP and SIGKILL on real engines on the CPU.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from ports import free_port
from router.fakes import FakeApi, FakeEngine, endpoint_slice, inference_model
from router.faults.load import Load
from router.faults.scripted_engine import TEXT, TOKENS

DEADLINE_S: Final = 3.0
CONNECT_S: Final = 2.0
SUSPECT_S: Final = 1.0
PROBED_S: Final = SUSPECT_S + 2.5
"""Silence until a suspect is asked, and two probes that it does not answer."""
EJECTED_WITHIN_S: Final = 2.0
BACK_WITHIN_S: Final = 10.0
SLACK_S: Final = 2.0
"""For the last tokens of the engine, after which its time begins, and a second engine's turn."""
READY_S: Final = 120.0

Switch = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """`shows_s`: what it takes to notice it, at most; None: it must not eject. `cuts`: it ends
    answers that have begun, which must go on elsewhere. `lasts_s`: until the engine is sound again.
    """

    name: str
    shows_s: float | None = 0.0
    cuts: bool = False
    lasts_s: float = 4.0


FAULTS: Final = (
    Fault("500"),
    Fault("breaks", cuts=True),
    Fault("frozen before the head", DEADLINE_S, lasts_s=8.0),
    Fault("frozen in mid-stream", DEADLINE_S, cuts=True, lasts_s=8.0),
    Fault("heartbeats", DEADLINE_S, lasts_s=8.0),
    Fault("429", None),
    Fault("503", None),
    Fault("black hole", PROBED_S, cuts=True, lasts_s=8.0),
)
REAL: Final = (
    Fault("SIGSTOP", PROBED_S, cuts=True, lasts_s=8.0),
    Fault("SIGKILL", cuts=True, lasts_s=1.0),
)


@dataclass
class Figures:
    """What one fault did. Times in seconds; None: it did not happen."""

    fault: str
    requests: int
    errors: int
    continued: float
    longest_wait_s: float
    ejected_s: float | None
    back_s: float | None
    retries: float
    missed: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        told = [
            self.fault,
            str(self.requests),
            str(self.errors),
            f"{self.continued:.0f}",
            f"{self.longest_wait_s:.2f}",
            "never" if self.ejected_s is None else f"{self.ejected_s:.2f}",
            "never" if self.back_s is None else f"{self.back_s:.2f}",
            f"{self.retries:.0f}",
            "; ".join(self.missed) or "passed",
        ]
        return f"| {' | '.join(told)} |"


HEADER: Final = """\
| fault | requests | errors | went on elsewhere | longest wait s | ejected after s | back after s \
| retries | |
|---|---|---|---|---|---|---|---|---|"""


@dataclass
class Stage:
    """A router and its engines, the first of which fails. `says`: what each answer must say."""

    router: "Router"
    model: str
    max_tokens: int
    says: str
    bad: str
    break_it: Callable[[str], Awaitable[None]]
    mend_it: Switch


async def measure(stage: Stage, fault: Fault, clients: int) -> Figures:
    """Let one fault happen under load."""
    load = Load(stage.router.url, clients, stage.model, stage.max_tokens, says=stage.says)
    metrics = _Metrics(stage)
    tasks = [asyncio.create_task(load.run()), asyncio.create_task(metrics.run())]
    try:
        await _until(lambda: any(seen.engine == stage.bad for seen in load.seen), READY_S)
        await asyncio.sleep(1.0)
        began_s = time.monotonic()
        await stage.break_it(fault.name)
        await asyncio.sleep(fault.lasts_s)
        await stage.mend_it()
        mended_s = time.monotonic()

        def is_back() -> bool:
            return any(
                seen.engine == stage.bad and seen.begun_s > mended_s and not seen.error
                for seen in load.seen
                if seen.ended_s
            )

        await _until(is_back, BACK_WITHIN_S + 5.0)
        back_s = time.monotonic() - mended_s if is_back() else None
        await asyncio.sleep(1.0)
        load.stop.set()
        await asyncio.wait_for(tasks[0], 30.0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ejected_s = metrics.ejected_s - began_s if metrics.ejected_s else None
    errors = [seen.error for seen in load.seen if seen.error]
    figures = Figures(
        fault=fault.name,
        requests=len(load.seen),
        errors=len(errors),
        continued=metrics.continued,
        longest_wait_s=max(seen.waited_s for seen in load.seen),
        ejected_s=ejected_s,
        back_s=back_s,
        retries=metrics.retries,
    )
    judge(figures, fault, sorted(set(errors)))
    return figures


def judge(figures: Figures, fault: Fault, errors: list[str]) -> None:
    """Write down which lines were missed."""
    missed = figures.missed
    if errors:
        missed.append(f"errors: {errors[:3]}")
    if fault.cuts and not figures.continued:
        missed.append("no stream had to go on elsewhere")
    if figures.longest_wait_s > DEADLINE_S + SLACK_S:
        missed.append("somebody waited too long")
    if fault.shows_s is None and figures.ejected_s is not None:
        missed.append("a busy engine was ejected")
    if fault.shows_s is not None and (
        figures.ejected_s is None or figures.ejected_s > fault.shows_s + EJECTED_WITHIN_S
    ):
        missed.append("ejected too late")
    if figures.back_s is None or figures.back_s > BACK_WITHIN_S:
        missed.append("not back in time")


class _Metrics:
    """The router's own counts, read ten times a second. `ejected_s`: when the first one came."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._first: float | None = None
        self.ejections = 0.0
        self.retries = 0.0
        self.continued = 0.0
        self.ejected_s = 0.0
        self._retries_before: float | None = None

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(self._stage.router.metrics_url) as response:
                    self._take(await response.text())
                await asyncio.sleep(0.1)

    def _take(self, text: str) -> None:
        self.ejections = _sum(text, "yaie_router_ejections_total")
        self.continued = _sum(text, "yaie_router_failovers_total", 'outcome="continued"')
        retries = _sum(text, "yaie_router_retries_total")
        if self._first is None:
            self._first, self._retries_before = self.ejections, retries
        self.retries = retries - (self._retries_before or 0.0)
        if self.ejections > self._first and not self.ejected_s:
            self.ejected_s = time.monotonic()


def _sum(text: str, name: str, label: str = "") -> float:
    lines = [one for one in text.splitlines() if one.startswith(name) and label in one]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


async def _until(check: Callable[[], bool], within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    while not check() and time.monotonic() < deadline_s:  # noqa: ASYNC110 - polls other processes
        await asyncio.sleep(0.05)


# Processes


@dataclass(frozen=True)
class Router:
    """Where a router process listens."""

    url: str
    metrics_url: str


HASTY = {
    "--first-token-timeout-s": DEADLINE_S,
    "--inter-token-timeout-s": DEADLINE_S,
    "--connect-timeout-s": CONNECT_S,
    "--suspect-after-s": SUSPECT_S,
}
"""Deadlines short enough for a test to wait for them."""


@contextlib.asynccontextmanager
async def router(api: FakeApi, *, deadlines: Mapping[str, float] = HASTY) -> AsyncIterator[Router]:
    """A router process."""
    port, metrics_port = free_port(), free_port()
    flags = {
        "--api-socket": api.socket,
        "--port": port,
        "--metrics-port": metrics_port,
        "--log-level": "error",
        **deadlines,
    }
    command = [str(part) for pair in flags.items() for part in pair]
    async with process("-m", "yaie_router", *command):
        url = f"http://127.0.0.1:{port}"
        await answered(url + "/readyz")
        yield Router(url, f"http://127.0.0.1:{metrics_port}/metrics")


@contextlib.asynccontextmanager
async def process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process in a group of its own, which is killed at the end, even if it is stopped."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGCONT)
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


async def answered(url: str) -> None:
    """Wait until this URL answers 200."""
    async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


async def publish(api: FakeApi, model: str, ports: list[int], router: Router) -> None:
    """Make the engines of these ports known to the router."""
    await api.put(inference_model(model))
    for index, port in enumerate(ports):
        engine = FakeEngine(f"pod-{index}")
        engine.port = port
        await api.put(endpoint_slice(model, engine, suffix=str(index)))
    wanted = f'yaie_router_endpoints{{model="{model}"}} {len(ports)}.0'
    async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
        while True:
            async with session.get(router.metrics_url) as response:
                if wanted in await response.text():
                    return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def scripted_engine(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """One scripted engine that is ready."""
    command = ("-m", "router.faults.scripted_engine", "--port", str(port))
    async with process(*command) as child:
        await answered(f"http://127.0.0.1:{port}/readyz")
        yield child


@contextlib.asynccontextmanager
async def scripted(folder: Path) -> AsyncIterator[Stage]:
    """Four scripted engines behind a router."""
    async with contextlib.AsyncExitStack() as stack:
        ports = [free_port() for _ in range(4)]
        for port in ports:
            await stack.enter_async_context(scripted_engine(port))
        api = FakeApi(folder / "api.sock")
        await api.start()
        stack.push_async_callback(api.stop)
        running = await stack.enter_async_context(router(api))
        await publish(api, "demo", ports, running)
        # The connection is made while the engine is sound: a black hole takes no new one.
        control = await stack.enter_async_context(aiohttp.ClientSession())

        async def set_fault(name: str) -> None:
            async with control.post(f"http://127.0.0.1:{ports[0]}/fault", data=name) as response:
                response.raise_for_status()

        await set_fault("none")
        yield Stage(running, "demo", TOKENS, TEXT, "pod-0", set_fault, lambda: set_fault("none"))


@contextlib.asynccontextmanager
async def real(folder: Path, engines: int = 3) -> AsyncIterator[Stage]:
    """Engines that compute, with the built-in model, behind a router."""
    async with contextlib.AsyncExitStack() as stack:
        ports = [free_port() for _ in range(engines)]
        command = ("-m", "yaie", "serve", "builtin://yaie-demo", "--port")
        children = [await stack.enter_async_context(process(*command, str(port))) for port in ports]
        for port in ports:
            await answered(f"http://127.0.0.1:{port}/readyz")
        api = FakeApi(folder / "api.sock")
        await api.start()
        stack.push_async_callback(api.stop)
        running = await stack.enter_async_context(router(api))
        await publish(api, "yaie-demo", ports, running)

        async def break_it(name: str) -> None:
            os.killpg(children[0].pid, signal.Signals[name])

        async def mend_it() -> None:
            if children[0].returncode is None:
                os.killpg(children[0].pid, signal.SIGCONT)
                return
            children[0] = await stack.enter_async_context(process(*command, str(ports[0])))
            await answered(f"http://127.0.0.1:{ports[0]}/readyz")

        yield Stage(running, "yaie-demo", 16, "", "pod-0", break_it, mend_it)


Stages = Callable[[Path], contextlib.AbstractAsyncContextManager[Stage]]


async def run(faults: tuple[Fault, ...], clients: int, stages: Stages) -> list[Figures]:
    """Measure each fault on fresh processes."""
    found = []
    for fault in faults:
        with tempfile.TemporaryDirectory() as folder:
            async with stages(Path(folder)) as stage:
                found.append(await measure(stage, fault, clients))
        print(found[-1].row, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=128)
    parser.add_argument("--real", action="store_true", help="only signals, on real engines")
    parser.add_argument("--only", help="one fault")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    faults = tuple(
        fault for fault in (REAL if given.real else FAULTS) if given.only in (None, fault.name)
    )
    print(HEADER)
    found = asyncio.run(run(faults, given.clients, real if given.real else scripted))
    if given.output:
        given.output.write_text("\n".join([HEADER, *(one.row for one in found)]) + "\n")
    return int(any(one.missed for one in found))


if __name__ == "__main__":
    sys.exit(main())
