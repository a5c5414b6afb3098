"""Tells a client what of its request has no effect: in a response header, and in the log.

Some clients always send what only their own service has. Refusing it would refuse the client.
"""

import logging
import re
from collections.abc import Sequence
from typing import Final

from yaie_api.logs import fields

log = logging.getLogger(__name__)

HEADER: Final = "warning"
MAX_CHARACTERS: Final = 512
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 _.,:-]")


def headers(found: Sequence[str]) -> dict[str, str]:
    """Return the header that names what was left out, in the form that Kubernetes' API uses; none
    if nothing was.
    """
    if not found:
        return {}
    named = _UNSAFE.sub("?", ", ".join(found))[:MAX_CHARACTERS]
    log.info("left out", extra=fields(what=named))
    return {HEADER: f'299 - "This server left out: {named}"'}
