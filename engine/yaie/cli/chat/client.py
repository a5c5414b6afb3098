"""Client of a streamed chat: request, server-sent events, measurements. Needs only aiohttp."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import aiohttp

from yaie_api.errors import UnavailableError, YaieError
from yaie_api.names import ENV_API_KEY

CONNECT_S: Final = 5.0
SILENCE_S: Final = 600.0
LINE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class ChatOptions:
    """Endpoint, credentials and sampling. `model=None`: the first model that the endpoint lists.
    `ca_file`: whom to trust; None: what the system trusts, or SSL_CERT_FILE.
    """

    endpoint: str
    model: str | None = None
    api_key: str | None = None
    system: str | None = None
    sampling: dict[str, float] = field(default_factory=dict)
    ca_file: str | None = None


@dataclass(frozen=True)
class AnswerStats:
    """Measurements of one answer. `tokens` is the server's count, or 0 if it sent none."""

    ttft_s: float
    seconds: float
    tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str | None = None

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second after the first token."""
        after_first_s = self.seconds - self.ttft_s
        return (self.tokens - 1) / after_first_s if self.tokens > 1 and after_first_s > 0 else 0.0

    def __str__(self) -> str:
        return f"TTFT {self.ttft_s * 1000:.0f} ms · {self.tokens_per_s:.1f} tokens/s"


class ChatError(YaieError):
    """The server refused the request, or its answer ended in an error."""


class ChatClient:
    """Client of one endpoint. Use it as an async context manager."""

    def __init__(self, options: ChatOptions) -> None:
        self._base = base_url(options.endpoint)
        headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
        self._headers = headers
        self._sampling = options.sampling
        self._ca_file = options.ca_file
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        tls = ssl.create_default_context(cafile=self._ca_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls),
            headers=self._headers,
            timeout=timeout,
            read_bufsize=LINE_BYTES,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def models(self) -> list[str]:
        """Names of the models that the endpoint serves.

        Raises:
            UnavailableError: the endpoint cannot be reached.
            ChatError: the server refused the request.

        """
        async with self._request("GET", "/v1/models") as response:
            try:
                listed = await response.json(content_type=None)
                return [str(entry["id"]) for entry in listed["data"]]
            except (ValueError, KeyError, TypeError) as error:
                raise ChatError(f"{self._base} does not speak the OpenAI API.") from error

    async def answer(
        self,
        model: str,
        messages: Sequence[dict[str, str]],
        on_text: Callable[[str], None],
    ) -> AnswerStats:
        """Stream one answer to `on_text` and return its measurements.

        Raises:
            UnavailableError: the endpoint cannot be reached, or the connection broke.
            ChatError: the server refused the request, or ended the answer with an error.

        """
        body = {"model": model, "messages": list(messages), "stream": True} | self._sampling
        body["stream_options"] = {"include_usage": True}
        meter = _Meter()
        async with self._request("POST", "/v1/chat/completions", json=body) as response:
            async for event in _events(response):
                if text := meter.take(event):
                    on_text(text)
        return meter.stats()

    def _request(self, method: str, path: str, **arguments: Any) -> "_Checked":
        if self._session is None:
            raise RuntimeError("use ChatClient as an async context manager")
        return _Checked(self._session.request(method, self._base + path, **arguments), self._base)


class _Meter:
    """Collects the measurements of one stream."""

    def __init__(self) -> None:
        self._started_s = self._last_s = time.perf_counter()
        self._first_s: float | None = None
        self._usage: dict[str, Any] = {}
        self._finish_reason: str | None = None

    def take(self, event: dict[str, Any]) -> str:
        """The text of one event.

        Raises:
            ChatError: the event reports an error.

        """
        if event.get("error"):
            raise ChatError(message_of(event))
        self._usage = event.get("usage") or self._usage
        text = ""
        for choice in event.get("choices") or ():
            text += (choice.get("delta") or {}).get("content") or ""
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if text:
            self._last_s = time.perf_counter()
            if self._first_s is None:
                self._first_s = self._last_s
        return text

    def stats(self) -> AnswerStats:
        first_s = self._last_s if self._first_s is None else self._first_s
        details = self._usage.get("prompt_tokens_details") or {}
        return AnswerStats(
            ttft_s=first_s - self._started_s,
            seconds=self._last_s - self._started_s,
            tokens=int(self._usage.get("completion_tokens") or 0),
            prompt_tokens=int(self._usage.get("prompt_tokens") or 0),
            cached_tokens=int(details.get("cached_tokens") or 0),
            finish_reason=self._finish_reason,
        )


class _Checked:
    """A request whose failures are raised as yaie's errors."""

    def __init__(self, request: Any, base: str) -> None:
        self._request = request
        self._base = base

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            response: aiohttp.ClientResponse = await self._request.__aenter__()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise UnavailableError(unreachable(self._base, error)) from error
        if response.status >= 400:
            text = await response.text(errors="replace")
            response.close()
            raise ChatError(_refusal(response.status, text))
        return response

    async def __aexit__(self, *error: object) -> None:
        await self._request.__aexit__(*error)
        if isinstance(error[1], aiohttp.ClientError | TimeoutError):
            raise UnavailableError(f"The connection to {self._base} broke.") from error[1]


def base_url(endpoint: str) -> str:
    """The base URL: the same for `host:port`, `http://host:port/` and `http://host:port/v1`."""
    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def unreachable(base: str, error: Exception) -> str:
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return f"{base} is not a URL."
    return (
        f"Nothing answers at {base}. Start a model with `yaie up MODEL` or `yaie serve MODEL`, or "
        "name another place with --endpoint; `yaie run MODEL` starts one and chats."
    )


def message_of(body: Any) -> str:
    """The message of an error body in any of the common forms."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return str(error["message"])
    return str(error or body)


def _refusal(status: int, text: str) -> str:
    hint = f" Give it with --api-key, or set {ENV_API_KEY}." if status == 401 else ""
    try:
        return message_of(json.loads(text)) + hint
    except ValueError:
        return f"The server answered {status}: {text[:200].strip()}"


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream up to [DONE].

    Raises ChatError if the stream ends without [DONE] or an event is not JSON.
    """
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == b"[DONE]":
            return
        try:
            event = json.loads(payload)
        except ValueError:
            raise ChatError("The server sent an event that is not JSON.") from None
        yield event
    raise ChatError("The answer was cut off.")
