"""Follows the store's history from a resourceVersion on."""

import asyncio
from collections.abc import AsyncGenerator

from yaie_local.apiserver.store import Event, ExpiredError, Store

__all__ = ["ExpiredError", "follow"]


async def follow(store: Store, version: int) -> AsyncGenerator[Event]:
    """Yield every write after `version`, without end.

    Raises:
        ExpiredError: the history no longer contains the writes after `version`.

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
