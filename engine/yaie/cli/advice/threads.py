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

    def done(deliver: Callable[[], None]) -> None:
        if not result.done():
            deliver()

    def work() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            failed = error
            deliver: Callable[[], None] = lambda: result.set_exception(failed)  # noqa: E731 - typed
        else:
            deliver = lambda: result.set_result(value)  # noqa: E731 - same
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done, deliver)

    threading.Thread(target=work, daemon=True).start()
    return await result
