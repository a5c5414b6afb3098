"""The admin port: endpoints that change the server or show its internals. Off by default.

They are not on the public port, even for a client with a key. The admin port checks the same keys.
"""

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.messages import Stats
from yaie.server.monitoring import health, info
from yaie.server.request.http import json_response, service_of
from yaie.server.routes import Endpoint
from yaie_api import __version__, names


async def reset_prefix_cache(request: Request) -> Response:
    """Drop the cached prefixes that no running request uses."""
    await service_of(request).engine.reset_prefix_cache()
    return json_response({"status": "ok"})


async def load(request: Request) -> Response:
    """Return the engine's load. `server_load` is vLLM's name for the number of requests."""
    service = service_of(request)
    engine, in_work = service.engine, await info.requests_in_work(service)
    known = {} if engine.stats is None else _load_of(engine.stats)
    return json_response({"server_load": in_work, "state": engine.state, **known})


def _load_of(stats: Stats) -> dict[str, Any]:
    used = stats.pages_total - stats.pages_free - stats.pages_cached
    return {
        "running": stats.running,
        "waiting": stats.waiting,
        "drain_rate_per_second": stats.completion_rate,
        "kv_utilization": used / stats.pages_total if stats.pages_total else 0.0,
        "kv_pages": stats.pages_total,
        "kv_pages_cached": stats.pages_cached,
        "host_pages": stats.host_pages_total,
        "host_pages_used": stats.host_pages_used,
    }


async def server_info(request: Request) -> Response:
    """Return the server's settings, without keys, and the model."""
    service = service_of(request)
    model = service.engine.info
    return json_response(
        {
            "version": __version__,
            "state": service.engine.state,
            "restarts": service.engine.restarts,
            "settings": service.options.settings,
            "model": None if model is None else msgspec.structs.asdict(model),
        }
    )


ENDPOINTS: Final = (
    Endpoint(
        "Forget cached prefixes", ("/reset_prefix_cache",), reset_prefix_cache, "POST", None,
        ("status",),
    ),
    Endpoint("The load in numbers", ("/load",), load, answer=("server_load", "state")),
    Endpoint("Settings and model", ("/server_info",), server_info, answer=("version", "settings")),
    Endpoint("Whether the server lives", (names.PATH_LIVE,), health.livez, answer=("status",)),
    Endpoint(
        "Whether it takes requests", (names.PATH_READY, "/health"), health.readyz,
        answer=("status",),
    ),
    Endpoint(
        "Metrics for Prometheus", (names.PATH_METRICS,), info.metrics, media="text/plain",
        needs_model=False,
    ),
)  # fmt: skip
