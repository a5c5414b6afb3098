"""Asks the pod of a download how far it is: `GET /progress`, with limits on time and size."""

import logging
from typing import Final

import aiohttp

from yaie_api import names
from yaie_api.download.messages import Progress, parse_progress
from yaie_api.logs import fields
from yaie_operator.cluster import Object

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
MOST_BYTES: Final = 4096


async def ask(pod: Object) -> Progress | None:
    """How far the pod's download is; None if it does not say so: it has not begun to listen, or a
    network policy keeps the operator away. The download goes on without an answer.
    """
    ip = str(pod.get("status", {}).get("podIP", ""))
    if not ip:
        return None
    host = f"[{ip}]" if ":" in ip else ip
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(
                f"http://{host}:{names.HTTP_PORT}{names.PATH_PROGRESS}", allow_redirects=False
            ) as answer,
        ):
            body = await answer.content.read(MOST_BYTES)
            return parse_progress(body) if answer.status == 200 else None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        about = fields(pod=pod["metadata"]["name"], error=str(error) or repr(error))
        log.debug("no progress", extra=about)
        return None
