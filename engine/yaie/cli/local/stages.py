"""What engines say about their start: how far it is (`GET /readyz`), and why they ended."""

import http.client
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from yaie_api import names

_TIMEOUT_S: Final = 0.5


def stages(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By the names of models: in which stage of its start an engine is, and how far. Models whose
    engines do not say it are left out.
    """
    found = {}
    for pod in pods:
        model = pod["metadata"].get("labels", {}).get(names.LABEL_MODEL)
        address = pod.get("status", {}).get("podIP")
        if model and address and (told := _told_by(address)):
            found[model] = told
    return found


def last_words(pods: Iterable[Mapping[str, Any]]) -> str:
    """Why an engine of these pods ended, in its own words; "" if none says it."""
    from yaie_operator.reconcile.pods import explanation

    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses", ()):
            for state in (status.get("state", {}), status.get("lastState", {})):
                if found := explanation(state.get("terminated", {}).get("message", "")):
                    return found
    return ""


def _told_by(address: str) -> str:
    connection = http.client.HTTPConnection(address, names.HTTP_PORT, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", names.PATH_READY)
        return _words(json.loads(connection.getresponse().read()))
    except (OSError, http.client.HTTPException, ValueError):
        return ""  # it does not listen yet, or it is no engine of ours
    finally:
        connection.close()


def _words(body: Any) -> str:
    stage = body.get("stage") if isinstance(body, dict) else None
    if not stage:
        return ""
    return f"{stage}: {body['detail']}" if body.get("detail") else str(stage)
