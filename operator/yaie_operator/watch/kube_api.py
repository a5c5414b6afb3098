"""Requests to a Kubernetes API server: authentication, timeouts, and errors as the port's classes.

The official asyncio client supplies credentials and TLS settings. Requests are plain REST, so that
a server-side apply sends exactly the operator's fields, and go through a session of our own: the
client's reads .netrc and the proxy variables in a thread for each request.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException

from yaie_operator.cluster import ConflictError, NotFoundError, RefusedError, UnreachableError


class NoCredentialsError(Exception):
    """No configuration names an API server and credentials."""


async def load_configuration(kubeconfig: str | None, context: str | None = None) -> Configuration:
    """Credentials: a kubeconfig file, else the pod's service account, else the default kubeconfig.
    `context`: of the kubeconfig; None: the current one.

    Raises:
        NoCredentialsError: there are none; the error names the places that were searched.

    """
    try:
        return await _load(kubeconfig, context)
    except (ConfigException, OSError) as error:
        place = kubeconfig or "the pod's service account and the default kubeconfig"
        raise NoCredentialsError(f"no credentials in {place}: {error}") from error


async def _load(kubeconfig: str | None, context: str | None) -> Configuration:
    configuration = Configuration()
    if kubeconfig is None and context is None:
        with contextlib.suppress(ConfigException):
            kube_config.load_incluster_config(client_configuration=configuration)
            return configuration
    await kube_config.load_kube_config(
        config_file=kubeconfig, context=context, client_configuration=configuration
    )
    return configuration


def current_context(kubeconfig: str | None, context: str | None = None) -> tuple[str, str]:
    """Name and default namespace of a kubeconfig's context; "" for what it does not say. `context`:
    its name; None: the current one.
    """
    try:
        known, current = kube_config.list_kube_config_contexts(kubeconfig)
    except (ConfigException, OSError):
        return "", ""  # the credentials are those of a pod
    named = next((one for one in known if one["name"] == context), current)
    return named["name"], named.get("context", {}).get("namespace") or ""


@dataclass(frozen=True)
class Request:
    """One REST call. `body` is JSON data; `media` is its content type."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    media: str = "application/json"


class KubeApi:
    """Sends requests; each ends within `timeout_s`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        timeout_s: float = 10.0,
        user_agent: str = "yaie-operator",
    ) -> None:
        self._configuration = configuration
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=RESTClientObject(configuration).ssl_context),
            headers={"Accept": "application/json", "User-Agent": user_agent},
            timeout=self._timeout,
        )

    async def close(self) -> None:
        await self._session.close()

    async def send(self, request: Request) -> Any:
        """Send a request and return the response's JSON.

        Raises:
            ConflictError: the object changed since it was observed.
            NotFoundError: the object does not exist.
            RefusedError: the API server refused the request.
            UnreachableError: the API server did not answer in time, or failed (401, 408, 429, 5xx),
                or the answer is not JSON.

        """
        data = await self.read(request)
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError as error:  # not the API server's: a proxy's page, say
            raise UnreachableError(f"{request.method} {request.path}: no JSON: {error}") from error

    async def read(self, request: Request) -> bytes:
        """As `send`, for a response that need not be JSON, such as a pod's log.

        Raises:
            UnreachableError: the API server did not answer in time.

        """
        try:
            status, data = await self._exchange(request)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{request.method} {request.path}: {error!r}") from error
        if status < 400:
            return data
        raise _error(status, _message(data))

    async def _exchange(self, request: Request) -> tuple[int, bytes]:
        known = self._configuration
        headers = {"Content-Type": request.media}
        token = await known.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        async with self._session.request(
            request.method,
            known.host + request.path,
            params=request.query,
            headers=headers,
            data=None if request.body is None else msgspec.json.encode(request.body),
            server_hostname=known.tls_server_name or None,
            proxy=known.proxy or None,
            proxy_headers=known.proxy_headers or None,
        ) as response:
            return response.status, await response.read()


def _message(data: bytes) -> str:
    """The message of the API server's Status object, else the beginning of the response."""
    try:
        status: Mapping[str, Any] = msgspec.json.decode(data)
        return str(status["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return data[:300].decode(errors="replace")


def _error(status: int, message: str) -> Exception:
    if status in {404, 410}:
        return NotFoundError(message)
    if status == 409:
        return ConflictError(message)
    if status in {401, 408, 429} or status >= 500:
        return UnreachableError(f"{status}: {message}")
    return RefusedError(message)
