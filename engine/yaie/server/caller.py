"""Who asks, as far as the engine cares: a tenant to share fairly with, and how long they wait."""

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from yaie_api import names
from yaie_api.errors import InvalidRequestError

MAX_TENANT_LENGTH: Final = 128


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant`: "" where nobody tells them apart. `started_s`: when the request came, on the
    monotonic clock. `timeout_s`: after this long nobody waits any more.
    """

    started_s: float
    tenant: str = ""
    timeout_s: float | None = None

    def salt(self, wanted: str | None) -> str:
        """The salt of the prefix cache: tenants never share prefixes, whatever they ask for."""
        return f"{self.tenant}/{wanted or ''}" if self.tenant else wanted or ""


def caller_of(
    headers: Mapping[str, str], *, tenant_header: str | None, tenants_by_key: bool
) -> Caller:
    """Read who asks from a request's headers. To be called first: the clock starts here.

    Args:
        headers: by lower-case name.
        tenant_header: one that the operator of this server trusts to name the tenant.
        tenants_by_key: each API key is a tenant of its own.

    Raises:
        InvalidRequestError: a header that cannot be understood.

    """
    tenant = ""
    if tenant_header is not None:
        tenant = headers.get(tenant_header, "")
    elif tenants_by_key:
        key = key_of(headers.get("authorization", ""), headers.get("x-api-key", ""))
        tenant = hashlib.sha256(key.encode()).hexdigest()[:16]
    if len(tenant) > MAX_TENANT_LENGTH:
        raise InvalidRequestError("The tenant's name is too long.", code="invalid_tenant")
    return Caller(time.monotonic(), tenant, _timeout_s(headers.get(names.HEADER_TIMEOUT)))


def key_of(authorization: str, x_api_key: str) -> str:
    """The key that a client shows, as OpenAI's clients do or as Anthropic's; "": none."""
    scheme, _, key = authorization.partition(" ")
    if scheme:
        return key.strip(" \t") if scheme.lower() == "bearer" else ""
    return x_api_key.strip(" \t")


def _timeout_s(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidRequestError(
            f"{names.HEADER_TIMEOUT} must be a positive number of seconds.", code="invalid_timeout"
        )
    return seconds
