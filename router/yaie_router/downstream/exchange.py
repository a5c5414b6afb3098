"""What is known of one request, from its first line to its last."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from yaie_api.http.access.head import Head
from yaie_router.upstream.call import Call
from yaie_router.upstream.trail import UNTRACED, Trail

CLIENT_LEFT: Final = 499


@dataclass
class Exchange:
    """What is known of one request, for its log line and its metrics."""

    request_id: str
    head: Head
    trail: Trail = UNTRACED
    route: str = "other"
    model: str = ""
    tenant: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    call: Call | None = None
    status: int = CLIENT_LEFT

    def told(self) -> dict[str, Any]:
        """What its log line says, in the words of the engines' own logs."""
        told: dict[str, Any] = {"route": self.route, "model": self.model}
        if self.tenant:
            told["tenant"] = self.tenant
        told["status"] = self.status
        return told if self.call is None else told | _of_engines(self.call)


def _of_engines(call: Call) -> dict[str, Any]:
    told: dict[str, Any] = {"endpoint": call.endpoint, "attempts": call.attempts}
    if call.attempts:
        told["outcome"] = call.outcome
    if (usage := call.usage) is not None:
        told["tokens_in"] = usage.prompt_tokens
        told["tokens_out"] = usage.completion_tokens
        told["cached"] = usage.cached_tokens
    elif call.relayed_tokens:
        told["tokens_out"] = call.relayed_tokens
        told["estimated"] = True
    if call.first_token_s is not None:
        told["ttft"] = round(call.first_token_s, 4)
    return told
