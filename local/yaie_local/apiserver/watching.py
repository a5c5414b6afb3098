"""Following the store's history from a resourceVersion on."""

import asyncio
from collections.abc import AsyncGenerator

from yaie_local.apiserver.store import Event, ExpiredError, Store

__all__ = ["ExpiredError", "follow"]


async def follow(store: Store, version: int) -> AsyncGenerator[Event]:
    """Every write after `version`, for ever.

    Raises:
        ExpiredError: the history is too short.

    """
    changed = asyncio.Event()
    unsubscribe = store.subscribe(changed.set)
    try:
        while True:
            changed.clear()
            for event in list(store.since(version)):
                version = event.version
                yield event
            await changed.wait()
    finally:
        unsubscribe()
