"""Findings of checks, how checks are run side by side in bounded time, and how they are told."""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from yaie.cli.advice.threads import in_thread
from yaie_api.errors import UnavailableError, YaieError

Level = Literal["ok", "warn", "fail", "skip"]
LIMIT_S: Final = 3.0
"""Longest time of one check."""
PROGRESS_S: Final = 2.0
"""After this time a terminal is told what is awaited."""


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do about it."""

    level: Level
    name: str
    message: str
    todo: str = ""


@dataclass(frozen=True)
class Check:
    """One check. `look` may block nothing: what blocks goes through `in_thread`."""

    name: str
    look: Callable[[], Awaitable[Finding]]


def ok(name: str, message: str) -> Finding:
    return Finding("ok", name, message)


def warn(name: str, message: str, todo: str) -> Finding:
    return Finding("warn", name, message, todo)


def fail(name: str, message: str, todo: str) -> Finding:
    return Finding("fail", name, message, todo)


def skip(name: str, message: str) -> Finding:
    return Finding("skip", name, message)


def here(name: str, look: Callable[[], Finding]) -> Check:
    """A check of this machine, which may block."""
    return Check(name, lambda: in_thread(look))


async def run(checks: Sequence[Check], *, limit_s: float = LIMIT_S) -> list[Finding]:
    """Run checks side by side; their findings in the order of the checks."""
    waiting = {check.name for check in checks}

    async def one(check: Check) -> Finding:
        try:
            async with asyncio.timeout(limit_s):
                return await check.look()
        except TimeoutError:
            return warn(check.name, f"no answer within {limit_s:g} s", "try again")
        except UnavailableError as error:
            return fail(check.name, error.message, "check the network, then try again")
        except YaieError as error:
            return warn(check.name, error.message, "ask for the right to read it")
        finally:
            waiting.discard(check.name)

    async with _telling(waiting):
        return list(await asyncio.gather(*map(one, checks)))


@contextlib.asynccontextmanager
async def _telling(waiting: set[str]) -> AsyncIterator[None]:
    """Tell a terminal what is still awaited, in one line that goes away again."""

    async def tell() -> None:
        began = time.monotonic()
        await asyncio.sleep(PROGRESS_S)
        while True:
            seconds = time.monotonic() - began
            text = f"checking ({seconds:.0f} s): {', '.join(sorted(waiting))}"
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\033[2K{text[:width]}")
            sys.stderr.flush()
            await asyncio.sleep(0.5)

    if not sys.stderr.isatty():
        yield
        return
    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        sys.stderr.write("\r\033[2K")
        sys.stderr.flush()


def lines(title: str, findings: Iterable[Finding]) -> list[str]:
    """The findings for people: one line each, and below those that need it what to do."""
    shown = [title]
    for found in findings:
        shown.append(f"  {found.level:<4}  {found.name:<16}  {found.message}")
        if found.todo:
            shown.append(f"  {'':<4}  {'':<16}  -> {found.todo}")
    return shown


def total(findings: Sequence[Finding]) -> str:
    """The last line: how much there is to do."""
    fails = sum(found.level == "fail" for found in findings)
    warns = sum(found.level == "warn" for found in findings)
    if not fails and not warns:
        return "Nothing is missing."
    return f"{_number(fails, 'failure')}, {_number(warns, 'warning')}."


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
