"""Fetches /metrics of pods, with limits on time, size and number of connections."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp

from yaie_api import names
from yaie_api.logs import fields
from yaie_operator.autoscaling.exposition import (
    EngineFigures,
    ExpositionError,
    RouterFigures,
    read_engine,
    read_router,
)
from yaie_operator.cluster import Object

log = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 8 << 20
MOST_CONNECTIONS: Final = 64


@dataclass(frozen=True)
class Place:
    """A pod's address."""

    namespace: str
    pod: str
    url: str


def places(pods: Iterable[Object]) -> tuple[Place, ...]:
    """Where these pods have their metrics; those without an address are left out."""
    return tuple(
        Place(
            namespace=pod["metadata"].get("namespace", ""),
            pod=pod["metadata"]["name"],
            url=f"http://{_host(ip)}:{_port(pod)}",
        )
        for pod in pods
        if (ip := pod.get("status", {}).get("podIP"))
    )


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def _port(pod: Object) -> int:
    ports = (
        port
        for container in pod.get("spec", {}).get("containers", ())
        for port in container.get("ports") or ()
    )
    by_name = {port.get("name"): port["containerPort"] for port in ports}
    own = by_name.get(names.METRICS_PORT_NAME)
    return int(own or by_name.get(names.HTTP_PORT_NAME, names.HTTP_PORT))


class Scraper:
    """Fetches pages. `key`: an API key for engines that ask for one."""

    def __init__(self, session: aiohttp.ClientSession, *, key: str = "") -> None:
        self._session = session
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]:
        """Figures of these routers; None for one that does not answer as it should."""
        return await self._all(read_router, pods)

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        """Figures of these engines; None for one that does not answer as it should."""
        return await self._all(read_engine, pods)

    async def _all(self, read: Callable[[str], T], pods: Iterable[Place]) -> Mapping[str, T | None]:
        asked = tuple(pods)
        found = await asyncio.gather(*(self._one(read, place) for place in asked))
        return {place.pod: figures for place, figures in zip(asked, found, strict=True)}

    async def _one(self, read: Callable[[str], T], place: Place) -> T | None:
        try:
            return read(await self._page(place))
        except (aiohttp.ClientError, OSError, TimeoutError, ExpositionError) as error:
            log.warning("no metrics", extra=fields(pod=place.pod, error=str(error) or repr(error)))
            return None

    async def _page(self, place: Place) -> str:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        url = place.url + names.PATH_METRICS
        async with self._session.get(
            url, timeout=timeout, headers=self._headers, allow_redirects=False
        ) as answer:
            return await body_of(answer)


async def body_of(answer: aiohttp.ClientResponse) -> str:
    """The whole body of an answer.

    Raises:
        ExpositionError: the status is not 200, or the body is larger than MOST_BYTES.

    """
    if answer.status != 200:
        raise ExpositionError(f"{answer.url.path} answers {answer.status}")
    body = bytearray()
    async for part in answer.content.iter_chunked(1 << 16):
        body += part
        if len(body) > MOST_BYTES:
            raise ExpositionError(f"{answer.url.path} is larger than {MOST_BYTES} bytes")
    return body.decode(errors="replace")


def session() -> aiohttp.ClientSession:
    """A session for a scraper; the caller closes it."""
    connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS)
    return aiohttp.ClientSession(connector=connector, trust_env=False)
