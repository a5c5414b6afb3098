"""The options that say how requests are served, for every HTTP process of a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    settings: Mapping[str, Any] = field(default_factory=dict)
