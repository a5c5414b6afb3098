"""Runs what blocks beside the event loop of a command that only looks."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a function that blocks. A function that hangs holds up neither the other checks
    nor the end of the command: its thread is left behind.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(value: T | None, error: Exception | None) -> None:
        if result.done():
            return  # nobody waits any more
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # without an error it is a T

    def work() -> None:
        value, failed = None, None
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, value, failed)

    threading.Thread(target=work, daemon=True).start()
    return await result
