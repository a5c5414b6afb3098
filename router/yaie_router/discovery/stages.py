"""How far the start of a model's first engine is, in words for a client that waits. Pure.

It names no pods and no nodes: a client has nothing to do with them.
"""

from collections.abc import Mapping
from typing import Any, Final

from yaie_api.resource.stages import LOADING, NO_NODE, PULLING, SCHEDULING, UNREACHED

NOT_STARTED: Final = "waiting for an engine to be started"
_BY_WORDS: Final = {
    SCHEDULING: "waiting for a pod to be scheduled",
    NO_NODE: "waiting for a node with room",
    PULLING: "pulling the image",
    LOADING: "loading weights",
    UNREACHED: "connecting to the engine",
}
_BY_REASON: Final = {
    "Downloading": "downloading weights",
    "ClaimPending": "waiting for a volume",
    "Creating": "starting an engine",
    "Starting": "starting an engine",
    "Idle": NOT_STARTED,
    "": "starting an engine",
}


def stage_of(status: Mapping[str, Any]) -> str:
    """Read a model's stage from its status."""
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    for kind in ("Accepted", "CacheReady", "EnginesReady"):
        one = conditions.get(kind) or {}
        reason = one.get("reason") or ""
        if not one or (one.get("status") == "True" and reason != "Idle"):
            continue
        told = one.get("message") or ""
        for words, stage in _BY_WORDS.items():
            if words in told:
                return stage
        return _BY_REASON.get(reason, f"an engine cannot start yet ({reason})")
    return NOT_STARTED
