"""Runs a batch from start to end: the engine process, the lines, the output file."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from yaie.progress import Progress
from yaie.server.batch.files import readable, replacing
from yaie.server.batch.lines import CONCURRENCY, Batch, Result
from yaie.server.batch.parse import count_requests
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.supervisor import Supervisor
from yaie.server.options import ServeOptions
from yaie.server.process.assembly import create_service
from yaie.server.web.app import create_app
from yaie_api.errors import InvalidRequestError


@dataclass
class Summary:
    """How many lines were answered, and how many failed."""

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
    """Answer every line of `source`, and write `target` when all are answered. Without a line there
    is nothing to load a model for: `target` is then empty.

    Raises:
        InvalidRequestError: a file cannot be read or written, or the input is not a batch.
        UnavailableError: the engine cannot load its model, or dies too often.

    """
    if source.resolve() == target.resolve():
        raise InvalidRequestError("The answers would replace the requests; name another output.")
    with readable(source) as lines, replacing(target) as output:
        count = count_requests(lines)
        if not count:
            return Summary()
        lines.seek(0)
        with Progress(count, shown=show_progress) as progress:
            return asyncio.run(_run(options, lines, output, progress, concurrency))


async def _run(
    options: ServeOptions,
    lines: IO[str],
    output: Callable[[bytes], None],
    progress: Progress,
    concurrency: int,
) -> Summary:
    service, summary = create_service(options, AsyncEngine()), Summary()
    app = create_app(service, limits=options.limits)

    def write(result: Result) -> None:
        output(result.line + b"\n")
        summary.add(result)

    def finished(result: Result) -> None:
        progress.add_request()
        progress.add_tokens(result.completion_tokens)

    async def work() -> None:
        await service.engine.wait_ready()
        await Batch(app, concurrency=concurrency, finished=finished).run(lines, write)

    supervisor = Supervisor(
        options.command,
        service.engine,
        service.load_tokenizer,
        service.load,
        backoff_s=options.restart_backoff_s,
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
