"""The prefix keys of a request, where its prompt begins as its body says."""

from collections.abc import Mapping
from typing import Any, Final

from yaie.server.service import Service
from yaie_api.prefix import PrefixKeys, keys, tenant_key

_REWRITES: Final = ("previous_response_id", "truncate_prompt_tokens", "context_management")
"""Fields with which a prompt begins with something else than the body does."""


def published_key(service: Service, tenant: str) -> bytes:
    """The key of the tenant's hashes; b"": its prefixes are not published."""
    options = service.options
    is_named_elsewhere = options.tenant_header is not None or options.tenants_by_key
    if not options.prefix_key or (tenant and is_named_elsewhere):
        return b""
    return tenant_key(options.prefix_key, tenant)


def prefix_keys(service: Service, body: Mapping[str, Any], tenant: str) -> PrefixKeys | None:
    """Compute the keys of a checked body. None: they are not published, or would be wrong.

    Tenants have prefixes of their own, of which a router that does not know the tenant's name can
    tell nothing: it does where it gave the name.
    """
    key = published_key(service, tenant)
    if not key or any(body.get(name) is not None for name in _REWRITES):
        return None
    if body.get("truncation") == "auto":
        return None
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int):
        return None
    return keys(body, key, model=service.names[0])
