"""A line of the log every few seconds while the engine is busy, and none while it is idle.

The HTTP process computes it from the counters that the engine process sends anyway (`Stats`).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from yaie.core.messages import Stats
from yaie.server.engine.client import AsyncEngine
from yaie_api.logs import fields

log = logging.getLogger("yaie.throughput")

PERIOD_S: Final = 10.0


async def report_throughput(
    engine: AsyncEngine,
    *,
    period_s: float = PERIOD_S,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Log the throughput of each period in which the engine was busy, until cancelled."""
    before, began = engine.stats, clock()
    while True:
        await asyncio.sleep(period_s)
        now, ended = engine.stats, clock()
        if now is not None and (found := figures(before, now, ended - began)) is not None:
            log.info("throughput", extra=fields(**found))
        before, began = now, ended


def figures(before: Stats | None, now: Stats, seconds: float) -> dict[str, Any] | None:
    """What the engine did between two snapshots; None: nothing, and nothing waits.

    Prompt tokens per second are those that were computed: cached ones are left out. The hit rate is
    the share of cached tokens in the prompts of the period.
    """
    if before is None or before.steps > now.steps:  # a new process has begun at zero
        before = None
    prompt, cached, generated = (
        getattr(now, name) - (getattr(before, name) if before is not None else 0)
        for name in ("prompt_tokens", "cached_prompt_tokens", "generated_tokens")
    )
    if not (prompt or generated or now.running or now.waiting):
        return None
    used = now.pages_total - now.pages_free - now.pages_cached
    return {
        "prompt_tokens_per_s": round((prompt - cached) / seconds, 1),
        "generation_tokens_per_s": round(generated / seconds, 1),
        "running": now.running,
        "waiting": now.waiting,
        "kv_usage_percent": round(100 * used / now.pages_total, 1) if now.pages_total else 0.0,
        "prefix_hit_percent": round(100 * cached / prompt, 1) if prompt else 0.0,
    }
