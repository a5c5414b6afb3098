"""Finds fields that others have added to an object of ours. Pure.

A server-side apply keeps them, for instance a container or a selector's key that somebody has
patched into a child. `metadata.managedFields` names the writer of every field; fields without a
writer are the API server's defaults and an admission policy's changes, which stay.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from yaie_operator.cluster import Object
from yaie_operator.watch.slim import SERVERS, writers

RESTARTED: Final = "f:kubectl.kubernetes.io/restartedAt"
"""`kubectl rollout restart` sets this annotation of the pod template: a wish of the user."""


EXACT: Final = {"Service": "selector"}
"""Maps of a spec in which no key but ours may stand, whoever has written it: a Service with one key
more leads nowhere. managedFields may be missing (a client can clear them) or name us (a copy)."""


def has_foreign_keys(desired: Object, live: Object) -> bool:
    """Whether a map that is ours alone has a key that `desired` lacks."""
    field = EXACT.get(desired["kind"])
    if field is None:
        return False
    return bool((live["spec"].get(field) or {}).keys() - desired["spec"][field].keys())


def has_foreign_fields(desired: Object, live: Object) -> bool:
    """Whether another writer has set a field of `live` that `desired` does not set."""
    for entry in writers(live):
        fields = {key: sub for key, sub in entry["fieldsV1"].items() if key not in SERVERS}
        if _exceeds(fields, desired):
            return True
    return False


def _exceeds(fields: Mapping[str, Any], desired: Any) -> bool:
    """Whether the field set (FieldsV1) has a field that `desired` lacks."""
    for step, below in fields.items():
        if step in (".", RESTARTED) or set(below) - {"."} == {RESTARTED}:
            continue
        found = _at(desired, step)
        if found is None or (below and _exceeds(below, found)):
            return True
    return False


def _at(desired: Any, step: str) -> Any:
    """What `desired` has at one step of a path: f:KEY, k:{KEYS}, v:VALUE or i:INDEX; or None."""
    kind, _, name = step.partition(":")
    if kind == "f":
        return desired.get(name) if isinstance(desired, Mapping) else None
    items = desired if isinstance(desired, list | tuple) else ()
    if kind == "k":
        keys = json.loads(name)
        matching = (item for item in items if _has_keys(item, keys))
        return next(matching, None)
    if kind == "v":
        value = json.loads(name)
        return value if value in items else None
    return None


def _has_keys(item: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a list's item has these keys. A port's protocol is TCP if it is not set."""
    return all(
        item.get(key, "TCP" if key == "protocol" else None) == value for key, value in keys.items()
    )
