"""How requests are served, whatever process does it: what `Service` holds of the options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
