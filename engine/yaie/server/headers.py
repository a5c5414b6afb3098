"""What a request's headers say about its sender: API key, tenant, time limit."""

import hashlib
import math
from collections.abc import Mapping
from typing import Final

from yaie.server.options import ServiceOptions
from yaie_api import names
from yaie_api.errors import InvalidRequestError
from yaie_api.http.access.keys import key_of

MAX_TENANT_LENGTH: Final = 128


def tenant_and_timeout(
    headers: Mapping[str, str], options: ServiceOptions
) -> tuple[str, float | None]:
    """Read a request's tenant and its time limit in seconds from its headers.

    Args:
        headers: by lower-case name.
        options: say whether a header or the API key names the tenant; with neither the router
            does, or it is "".

    Raises:
        InvalidRequestError: the tenant's name is too long, or the time limit is no positive number.

    """
    if options.tenant_header is not None:
        tenant = headers.get(options.tenant_header, "")
    elif options.tenants_by_key:
        key = key_of(headers.get("authorization", ""), headers.get("x-api-key", ""))
        tenant = hashlib.sha256(key.encode()).hexdigest()[:16]
    else:
        tenant = headers.get(names.HEADER_TENANT, "")
    if len(tenant) > MAX_TENANT_LENGTH:
        raise InvalidRequestError("The tenant's name is too long.", code="invalid_tenant")
    return tenant, _timeout_s(headers.get(names.HEADER_TIMEOUT))


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
