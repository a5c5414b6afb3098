"""One run of `yaie up`: the machine, the operator on it, progress, and shutdown.

bind the port → open the machine → store the objects → start the operator → show progress
    → ready: print how to chat, or run the command → wait for a signal → end everything

Without any object it waits for `yaie apply`.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, TextIO

from yaie.cli.local.files import DEFAULT_NAMESPACE, Loaded
from yaie.cli.local.front import Front
from yaie.cli.local.progress import ModelState, StartProgress
from yaie.cli.local.stages import last_words, stages
from yaie_api import logs, names
from yaie_api.errors import InvalidRequestError, UnavailableError
from yaie_api.logs import LogFormat
from yaie_local import kinds
from yaie_local.kubelet import gpus
from yaie_local.kubelet.containers import PROGRAMS
from yaie_local.kubelet.publish import Published
from yaie_local.machine import Machine, Settings
from yaie_local.state import StateError, StateFolder, check_free
from yaie_operator.cluster import RefusedError
from yaie_operator.config import OperatorConfig
from yaie_operator.manager import Manager
from yaie_operator.watch.kinds import INFERENCE_MODEL

ENV_ENDPOINT: Final = "YAIE_ENDPOINT"
"""Base URL of the API, for the command that `yaie up` runs."""
_LOOK_S: Final = 0.2
_STAGE_S: Final = 1.0
_DEBOUNCE_S: Final = 0.02
_PROGRESS_S: Final = 1.0


@dataclass(frozen=True)
class Options:
    """Options of `yaie up` from the command line.

    Attributes:
        port: of the API on 127.0.0.1; None: 8000 if it is free, else any free one.
        command: runs when everything is ready; `stdin` is its standard input, None: this one's.
        gives_up: ends when an engine cannot start, instead of trying again.
        news: where the progress of the start is told.

    """

    state: StateFolder
    namespace: str
    port: int | None
    objects: tuple[Loaded, ...]
    timeout_s: float | None = None
    command: tuple[str, ...] = ()
    stdin: bytes | None = None
    gives_up: bool = False
    front: Front = field(default_factory=Front)
    news: TextIO = field(default_factory=lambda: sys.stdout)


class Session:
    """One run of `yaie up`. `run` returns the exit status and may be called once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._machine: Machine | None = None
        self._progress = StartProgress(options.news)
        self._stages: dict[str, str] = {}
        self._was_ready = False

    async def run(self) -> int:
        """Run until a signal, the command's end or a failure of the operator.

        Raises:
            InvalidRequestError: an object is refused, there is nothing that the command could talk
                to, or the command cannot run.
            StateError: the state folder or the port cannot be used.
            UnavailableError: the models are not ready within the time limit.

        """
        check_free(self._options.state)
        published = _bound(self._options)
        self._catch_signals()
        with contextlib.closing(published.socket):
            async with Machine.open(
                self._options.state, settings=_settings(), published=published
            ) as machine:
                self._machine = machine
                self._store_objects(machine)
                async with _operating(machine, published) as operator:
                    status = await self._serve(machine, published, operator)
                self._say("stopping (Ctrl-C again: at once)")
        return status

    async def _serve(
        self, machine: Machine, published: Published, operator: asyncio.Task[None]
    ) -> int:
        """Wait until all models are ready, then for the end; returns the exit status."""
        if not self._states(machine):
            where = _where(self._options)
            self._say(
                f"no model yet: in another terminal `yaie run MODEL{where}` or "
                f"`yaie apply -f model.yaml{where}` starts one (Ctrl-C: stop)"
            )
            await self._until(operator, lambda: bool(self._states(machine)))
            if self._stop.is_set():
                return 0
        began = time.monotonic()
        asking = asyncio.create_task(self._ask_stages(machine))
        try:
            await self._until_ready(machine, operator, began)
        finally:
            asking.cancel()
            self._stages = {}
        if not self._was_ready:
            return 130
        if self._options.command:
            self._progress.clear()
            return await self._run_command(published)
        self._progress.finish()
        self._introduce(machine, published, time.monotonic() - began)
        while not self._stop.is_set() and not operator.done():
            self._progress.show(self._states(machine), time.monotonic() - began)
            await self._pause()
        return 0

    async def _until(self, operator: asyncio.Task[None], fact: Callable[[], bool]) -> None:
        """Wait for a fact, a signal or the operator's end."""
        while not fact() and not self._stop.is_set() and not operator.done():
            await self._pause()

    async def _ask_stages(self, machine: Machine) -> None:
        """Keep what the engines that start say about it, until cancelled."""
        while True:
            pods = machine.verbs.store.list(kinds.PODS.kind)
            self._stages = await asyncio.to_thread(stages, pods)
            await asyncio.sleep(_STAGE_S)

    async def _until_ready(
        self, machine: Machine, operator: asyncio.Task[None], began: float
    ) -> None:
        """Show progress until every model is settled, a signal arrives or the operator ends.

        Raises:
            UnavailableError: the time limit has passed, or an engine cannot start.

        """
        limit_s = self._options.timeout_s
        while not self._stop.is_set() and not operator.done():
            states, elapsed_s = self._states(machine), time.monotonic() - began
            self._progress.show(states, elapsed_s)
            if all(state.settled for state in states):
                self._progress.remember(states)
                self._was_ready = True
                return
            if self._options.gives_up and any(state.has_failed for state in states):
                failed = next(state for state in states if state.has_failed)
                pods = machine.verbs.store.list(kinds.PODS.kind)
                raise UnavailableError(last_words(pods) or failed.message)
            if limit_s is not None and elapsed_s > limit_s:
                late = "; ".join(f"{s.name}: {s.message}" for s in states if not s.settled)
                raise UnavailableError(f"not ready after {limit_s:g} s: {late}")
            await self._pause()

    def _store_objects(self, machine: Machine) -> None:
        """Check all objects, then store all of them.

        Raises:
            InvalidRequestError: an object is refused (with its file and line), or there is a
                command and nothing that it could talk to.

        """
        for dry_run in (True, False):
            for loaded in self._options.objects:
                try:
                    machine.verbs.apply(loaded.object, manager="yaie", force=True, dry_run=dry_run)
                except RefusedError as error:
                    raise InvalidRequestError(f"{loaded.where}: {error}") from error
        if self._options.command and not self._states(machine):
            raise InvalidRequestError(
                "nothing to run; name a model or a file: yaie up -f model.yaml -- COMMAND"
            )

    async def _run_command(self, published: Published) -> int:
        """Run the command and return its exit status. Meanwhile only the command handles Ctrl-C."""
        (program, *rest), text = self._options.command, self._options.stdin
        argv = [*PROGRAMS.get(program, (program,)), *rest]
        env = {**self._options.front.environment(os.environ), ENV_ENDPOINT: published.url}
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, env=env, stdin=None if text is None else asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise InvalidRequestError(f"cannot run {program}: {error.strerror}") from error
        ended = asyncio.create_task(process.communicate(text))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            process.terminate()
        await ended
        status = process.returncode or 0
        return status if status >= 0 else 128 - status

    def _introduce(self, machine: Machine, published: Published, elapsed_s: float) -> None:
        first = min((state.name for state in self._states(machine)), default="NAME")
        where = _where(self._options)
        self._say(
            f"\nready after {elapsed_s:.1f} s\n"
            f"Open {published.url}/ in a browser: a chat, and the models and their state.\n"
            f"  endpoint  {published.url}/v1\n{self._options.front.hint}"
            f"  chat      yaie chat --endpoint {published.url} --model {first}\n"
            f"  state     yaie ps{where}\n"
            f"  logs      yaie logs {first} --follow{where}\n"
            f"  more      yaie scale {first} --replicas 2{where}\n"
            f"  stop      Ctrl-C\n"
        )

    def _states(self, machine: Machine) -> list[ModelState]:
        models = machine.verbs.store.list(INFERENCE_MODEL)
        return [ModelState.of(model, self._stages) for model in models]

    def _say(self, text: str) -> None:
        if not self._options.command:
            print(text, flush=True)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._stop.wait()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored e.g. under nohup
                loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        """Handle a signal: the first starts an orderly shutdown, the second kills processes."""
        if self._stop.is_set() and self._machine is not None:
            self._machine.hurry()
        self._stop.set()


def main(options: Options, *, log_level: str = "warning", log_format: LogFormat = "auto") -> int:
    """Run a session in this process and return its exit status.

    Raises:
        UnavailableError: the state folder or the port cannot be used.

    """
    logs.configure(level=log_level, log_format=log_format)
    try:
        return asyncio.run(Session(options).run())
    except StateError as error:
        raise UnavailableError(str(error)) from error


@contextlib.asynccontextmanager
async def _operating(machine: Machine, published: Published) -> AsyncIterator[asyncio.Task[None]]:
    """Run the operator on the machine; its failure, if any, is raised when the block ends."""
    config = OperatorConfig(
        endpoint_format=f"{published.url}/v1",
        debounce_s=_DEBOUNCE_S,
        router_drain_delay_s=0,  # one router: nobody takes over
        progress_s=_PROGRESS_S,
    )
    ending = asyncio.Event()
    task = asyncio.create_task(Manager(machine.cluster, config).run(ending))
    try:
        yield task
    finally:
        ending.set()
        await task


def _bound(options: Options) -> Published:
    """The listening socket of the API.

    Raises:
        StateError: the port is in use, or this user may not bind it.

    """
    if options.port is not None:
        return options.front.bind(options.namespace, options.port)
    try:
        return options.front.bind(options.namespace, names.HTTP_PORT)
    except StateError:  # another program has it
        return options.front.bind(options.namespace, 0)


def _where(options: Options) -> str:
    """The flags with which other commands find the same models."""
    words: list[str] = []
    if options.state.path != StateFolder.default().path:
        words += ["--state-dir", str(options.state.path)]
    if options.namespace != DEFAULT_NAMESPACE:
        words += ["--namespace", options.namespace]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _settings() -> Settings:
    """The machine's settings: pods inherit this environment without the YAIE_* variables."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("YAIE_")}
    return Settings(environ=inherited, gpu_ids=tuple(gpus.detect(os.environ)))
