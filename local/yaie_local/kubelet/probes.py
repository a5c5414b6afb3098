"""Container probes over HTTP and TCP, with Kubernetes' defaults."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from yaie_local.kubelet.containers import ConfigError
from yaie_operator.cluster import Object

EAGER_PERIOD_S: Final = 0.25
"""Longest time in seconds between tries until the first success, since local probes are cheap."""


@dataclass(frozen=True)
class Probe:
    """One probe. `path` is None for a TCP probe."""

    port: int
    path: str | None
    headers: Mapping[str, str]
    delay_s: float
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, pod: Object, name: str) -> Self | None:
        """The probe `name` (startupProbe, …) of a pod's container; None if it has none.

        Raises:
            ConfigError: this kind of probe is not supported here, or its named port is unknown.

        """
        container = pod["spec"]["containers"][0]
        spec = container.get(name)
        if spec is None:
            return None
        action = spec.get("httpGet") or spec.get("tcpSocket")
        if action is None:
            raise ConfigError(f"{name}: only httpGet and tcpSocket work on this machine")
        headers = {header["name"]: header["value"] for header in action.get("httpHeaders") or ()}
        return cls(
            port=port_number(action["port"], container),
            path=action.get("path", "/") if "httpGet" in spec else None,
            headers=headers,
            delay_s=spec.get("initialDelaySeconds", 0),
            period_s=spec.get("periodSeconds", 10),
            timeout_s=spec.get("timeoutSeconds", 1),
            failures=spec.get("failureThreshold", 3),
        )

    @property
    def limit_s(self) -> float:
        """Seconds for which a startup probe may fail."""
        return self.delay_s + self.period_s * self.failures


def port_number(port: int | str, container: Mapping[str, Any]) -> int:
    """The number of a port that is given as a number or as the name of a container port.

    Raises:
        ConfigError: the container has no port of this name.

    """
    if isinstance(port, int):
        return port
    named = (p["containerPort"] for p in container.get("ports") or () if p.get("name") == port)
    number = next(named, None)
    if number is None:
        raise ConfigError(f'the container has no port named "{port}"')
    return int(number)


async def failure(session: aiohttp.ClientSession, probe: Probe, address: str) -> str | None:
    """Probe once: the reason of the failure, or None on success."""
    try:
        async with asyncio.timeout(probe.timeout_s):
            if probe.path is None:
                await _connect(address, probe.port)
                return None
            return await _get(session, probe, address)
    except TimeoutError:
        return f"no answer within {probe.timeout_s:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return f"cannot connect: {type(error).__name__}"


async def _get(session: aiohttp.ClientSession, probe: Probe, address: str) -> str | None:
    url = f"http://{address}:{probe.port}{probe.path}"
    async with session.get(url, headers=probe.headers, allow_redirects=False) as response:
        if 200 <= response.status < 400:
            return None
        body = (await response.content.read(200)).decode(errors="replace").strip()
        return f"HTTP {response.status}: {body}" if body else f"HTTP {response.status}"


async def _connect(address: str, port: int) -> None:
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
    await writer.wait_closed()
