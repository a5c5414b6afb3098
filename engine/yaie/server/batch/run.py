"""A batch from start to end: an engine process as under the server, the lines, the output file."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from yaie.progress import Progress
from yaie.server.app import create_app
from yaie.server.batch.lines import CONCURRENCY, Batch, Result
from yaie.server.client import EngineState
from yaie.server.run import ServeOptions, create_service
from yaie.server.supervisor import Supervisor
from yaie_api.errors import InvalidRequestError


@dataclass
class Summary:
    """What became of the lines."""

    requests: int = 0
    failed: int = 0
    completion_tokens: int = 0

    def add(self, result: Result) -> None:
        self.requests += 1
        self.failed += not result.ok
        self.completion_tokens += result.completion_tokens


def run_file(
    options: ServeOptions,
    source: Path,
    target: Path,
    *,
    concurrency: int = CONCURRENCY,
    show_progress: bool = True,
) -> Summary:
    """Answer every line of `source` in `target`, which appears when it is complete.

    Raises:
        InvalidRequestError: a file cannot be read or written.
        UnavailableError: the engine cannot load its model, or cannot be kept alive.

    """
    with _readable(source) as lines, _replacing(target) as output:
        count = sum(1 for line in lines if line.strip())
        lines.seek(0)
        with Progress(count, shown=show_progress) as progress:
            return asyncio.run(_run(options, lines, output, progress, concurrency))


async def _run(
    options: ServeOptions,
    lines: IO[str],
    output: IO[bytes],
    progress: Progress,
    concurrency: int,
) -> Summary:
    service, summary = create_service(options), Summary()
    app = create_app(service, limits=options.limits)

    def write(result: Result) -> None:
        output.write(result.line + b"\n")
        summary.add(result)
        progress.add_request()
        progress.add_tokens(result.completion_tokens)

    async def work() -> None:
        await service.engine.wait_ready()
        await Batch(app, concurrency=concurrency).run(lines, write)

    supervisor = Supervisor(
        options.command, service.engine, service.load, backoff_s=options.restart_backoff_s
    )
    tasks = [asyncio.ensure_future(supervisor.run()), asyncio.ensure_future(work())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        tasks[1].cancel()
        await supervisor.stop()
        service.engine.detach(EngineState.STOPPED)
        await asyncio.gather(*tasks, return_exceptions=True)
    return summary


def _readable(path: Path) -> IO[str]:
    try:
        return path.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidRequestError(f"Cannot read {str(path)!r}: {error.strerror}.") from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside `path` that takes its place at the end, or vanishes after an error."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidRequestError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
