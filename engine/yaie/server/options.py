"""What the user has set for the server: for all requests, for one, for its processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SILENT_S: Final = 9.0
"""An engine process that serves sends a message twice a second. After so much silence it is looked
at once more and killed: ten seconds at most.
"""


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What the user has set for all requests.

    Attributes:
        names: model names for clients; empty: the engine's own name for the model.
        use_generation_config: whether sampling defaults come from the checkpoint.
        log_prompts: whether prompts and outputs are logged.
        chat_template: a file to use instead of the model's own template.
        tool_call_parser: how the model writes tool calls; None: as its template says.
        reasoning_parser: how it marks its reasoning; None: as its template says.
        sse_keep_alive_s: time between comments in a stream that has nothing to say; 0: none.
        priorities: whether requests may have one.
        tenant_header: request header (lower case) that is trusted to name the tenant.
        tenants_by_key: each API key is a tenant of its own.
        response_mark: ids of responses begin with it, so that a router finds them here again.
        settings: what GET /server_info on the admin port tells; without secrets.

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
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What one request may take."""

    body_bytes: int = 4 * 1024 * 1024
    body_s: float = 30.0
    headers: int = 100
    header_bytes: int = 64 * 1024
    discard_bytes: int = 16 * 1024 * 1024
    """Of a body that is too large, so much is read and dropped: closing at once would reset the
    connection before the client has seen the answer."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServiceOptions):
    """How to serve; what to serve is in the engine's command.

    Attributes:
        command: argument list of an engine process for a given ipc address.
        admin_port: where control endpoints listen; None: nowhere.
        drain_s: how long running requests may take after SIGTERM.
        restart_backoff_s: wait before the first restart of the engine; doubles with each one.
        silent_s: silence after which an engine process is killed.
        api_server_count: HTTP processes that share the port and the engine process.

    """

    command: Callable[[str], Sequence[str]]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    drain_s: float = 30.0
    restart_backoff_s: float = 1.0
    silent_s: float = SILENT_S
    api_server_count: int = 1
    limits: Limits = field(default_factory=Limits)
