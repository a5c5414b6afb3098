"""API keys from the entries of a Secret, each named for its tenant. Pure but for its log.

kubectl create secret generic yaie-keys --from-literal=team-a=sk-...
"""

import logging
import re
from typing import Final

from yaie_api.http.access.keys import ApiKeys, parse_entry
from yaie_api.logs import fields
from yaie_router.tenants.mount import Entries

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[-._A-Za-z0-9]{1,128}")


def keys_of(entries: Entries) -> ApiKeys:
    """The keys of all tenants. An entry that cannot be read is left out, and the log names it: a
    mistake in one tenant's entry locks nobody else out, and lets nobody in.
    """
    tenants: dict[str, tuple[bytes, ...]] = {}
    owners: dict[bytes, str] = {}
    for tenant, entry in sorted(entries.items()):
        try:
            tenants[tenant] = _digests(tenant, entry)
        except ValueError as error:
            told = fields(tenant=tenant, error=str(error))
            log.error("an entry with API keys is left out", extra=told)  # noqa: TRY400 - no fault of ours
            continue
        for one in tenants[tenant]:
            if (first := owners.setdefault(one, tenant)) != tenant:
                told = fields(tenant=tenant, counts_for=first)
                log.warning("two tenants have the same API key", extra=told)
    keys = ApiKeys(tenants=tenants)
    if keys:
        log.info("API keys read", extra=fields(tenants=len(tenants), keys=len(keys)))
    else:
        log.warning("there is no API key: nobody is let in")
    return keys


def _digests(tenant: str, entry: bytes) -> tuple[bytes, ...]:
    if not _NAME.fullmatch(tenant):
        raise ValueError("its name is none of a tenant: up to 128 letters, digits, - _ .")
    return parse_entry(entry)
