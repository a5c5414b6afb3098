"""The options of `yaie serve`: how requests are served, the limits of one, the whole server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from yaie_api.http.access.body import LINGER_S, BodyLimits
from yaie_api.http.access.cors import CorsPolicy
from yaie_api.tracing.settings import Tracing

SILENT_S: Final = 9.0
"""A serving engine process sends a message twice a second. After this long without one, it is
checked once more and then killed, within ten seconds in all.
"""


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of `yaie serve` that apply to all requests.

    Attributes:
        names: model names for clients; empty: the engine's own name for the model.
        use_generation_config: whether sampling defaults come from the checkpoint.
        log_prompts: whether prompts and outputs are logged.
        chat_template: a file to use instead of the model's own template.
        tool_call_parser: format of the model's tool calls; None: detected from its template.
        reasoning_parser: format of its reasoning; None: detected from its template.
        sse_keep_alive_s: a comment is sent after this long without an event; 0: never.
        priorities: whether requests may set a priority.
        tenant_header: request header (lower case) that is trusted to name the tenant.
        tenants_by_key: whether each API key is a tenant of its own.
        response_mark: prefix of response ids, by which the router finds the engine that has them.
        vllm_metrics: whether metrics are shown under vLLM's names, too.
        prefix_key: secret of the prefix keys that are published; empty: none are.
        settings: what GET /server_info on the admin port returns; without secrets.

    """

    names: tuple[str, ...] = ()
    use_generation_config: bool = True
    log_prompts: bool = False
    chat_template: Path | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    sse_keep_alive_s: float = 0.0
    priorities: bool = False
    tenant_header: str | None = None
    tenants_by_key: bool = False
    response_mark: str = ""
    vllm_metrics: bool = False
    prefix_key: bytes = field(default=b"", repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """Limits of one request: of its body, and bytes and number of its headers."""

    body: BodyLimits = field(default_factory=lambda: BodyLimits(most_bytes=4 * 1024 * 1024))
    headers: int = 100
    header_bytes: int = 64 * 1024
    linger_s: float = LINGER_S
    linger_bytes: int = 16 * 1024 * 1024
    """After an early answer, so much of the rest of a body is read and dropped."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServiceOptions):
    """All options of a server. Those of the model are in the engine's command.

    Attributes:
        command: returns the argument list of an engine process that connects to an ipc address.
        api_keys: those that are accepted; empty: none is needed.
        cors: which pages of other origins may use the public port.
        admin_port: the port of the admin endpoints; None: they are off.
        drain_s: how long running requests may take after SIGTERM.
        restart_backoff_s: wait before the first restart of the engine; doubles with each one.
        silent_s: an engine process that sends nothing for this long is killed.
        api_server_count: HTTP processes that share the port and the engine process.
        tracing: how traces are exported; None: there are none.

    """

    command: Callable[[str], Sequence[str]]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    cors: CorsPolicy = field(default_factory=CorsPolicy)
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    drain_s: float = 30.0
    restart_backoff_s: float = 1.0
    silent_s: float = SILENT_S
    api_server_count: int = 1
    tracing: Tracing | None = None
    limits: Limits = field(default_factory=Limits)
