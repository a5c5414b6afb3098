"""Takes figures from a Prometheus server, where the operator may not reach the pods.

It asks for the pods' own samples and leaves rates and percentiles to `signals`, so both sources
lead to the same decisions. Prometheus has to put the labels `namespace` and `pod` on what it
scrapes, as its Kubernetes discovery is commonly set up. A pod that it cannot scrape has no samples.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import aiohttp

from yaie_api.logs import fields
from yaie_operator.autoscaling.exposition import (
    ENGINE_NAMES,
    ROUTER_NAMES,
    EngineFigures,
    ExpositionError,
    RouterFigures,
    Sample,
    engine_figures,
    router_figures,
)
from yaie_operator.autoscaling.scrape import Place, body_of

log = logging.getLogger(__name__)
T = TypeVar("T")
TIMEOUT_S: Final = 5.0


class Prometheus:
    """A Prometheus server's HTTP API at `url`, for example http://prometheus.monitoring.svc:9090."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url.rstrip('/')}/api/v1/query"

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]:
        """Figures of these routers; None for one without samples."""
        return await self._all(router_figures, ROUTER_NAMES, tuple(pods))

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        """Figures of these engines; None for one without samples."""
        return await self._all(engine_figures, ENGINE_NAMES, tuple(pods))

    async def _all(
        self,
        read: Callable[[Iterable[Sample]], T],
        wanted: Iterable[str],
        pods: tuple[Place, ...],
    ) -> Mapping[str, T | None]:
        if not pods:
            return {}
        try:
            samples = await self._samples(query_of(wanted, pods))
            return {p.pod: read(samples[p.pod]) if p.pod in samples else None for p in pods}
        except (aiohttp.ClientError, OSError, TimeoutError, ExpositionError) as error:
            log.warning("no answer from Prometheus", extra=fields(error=str(error) or repr(error)))
            return dict.fromkeys((p.pod for p in pods), None)

    async def _samples(self, query: str) -> Mapping[str, list[Sample]]:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._session.post(
            self._url, data={"query": query}, timeout=timeout, allow_redirects=False
        ) as answer:
            body = await body_of(answer)
        try:
            return _by_pod(json.loads(body)["data"]["result"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ExpositionError(f"not the answer of a query: {error!r}") from error


def query_of(wanted: Iterable[str], pods: Iterable[Place]) -> str:
    """PromQL for the samples of these pods, which share a namespace. Names of objects and metrics
    hold nothing that PromQL or its regular expressions read otherwise, except the dot.
    """
    listed = tuple(pods)
    names = "|".join(wanted)
    pod = "|".join(place.pod.replace(".", "\\\\.") for place in listed)
    return f'{{__name__=~"{names}",namespace="{listed[0].namespace}",pod=~"{pod}"}}'


def _by_pod(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, list[Sample]]:
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        labels = row["metric"]
        found[labels["pod"]].append((labels["__name__"], labels, float(row["value"][1])))
    return found
