"""Small pure functions on Kubernetes objects as JSON. Objects are never mutated: an edit returns a
new object that shares the unchanged parts.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from yaie_operator.cluster import Object


class Ref(NamedTuple):
    """Identifies one object: API version, kind, namespace ("" if not namespaced) and name."""

    api_version: str
    kind: str
    namespace: str
    name: str


def ref(obj: Object) -> Ref:
    meta = obj["metadata"]
    return Ref(obj["apiVersion"], obj["kind"], meta.get("namespace", ""), meta["name"])


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def labels_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def matches(obj: Object, labels: Mapping[str, str] | None) -> bool:
    """Whether the object has all the labels."""
    own = labels_of(obj)
    return all(own.get(key) == value for key, value in (labels or {}).items())


def owner_uids(obj: Object) -> list[str]:
    return [str(owner["uid"]) for owner in obj["metadata"].get("ownerReferences") or ()]


def owned_by(objects: Iterable[Object], owner: Object) -> list[Object]:
    uid = uid_of(owner)
    return [obj for obj in objects if uid in owner_uids(obj)]


def owner_reference(owner: Object) -> dict[str, Any]:
    """A controller reference for a child."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Object) -> bool:
    """Whether no container of a pod will run again."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def with_metadata(obj: Object, **changes: Any) -> dict[str, Any]:
    """The object with metadata keys set; a value of None removes the key."""
    meta = {**obj["metadata"], **changes}
    return {**obj, "metadata": {k: v for k, v in meta.items() if v is not None}}


def condition(obj: Object, kind: str) -> Mapping[str, Any] | None:
    """The status condition of a type, or None."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def set_condition(
    conditions: Iterable[Mapping[str, Any]], new: Mapping[str, Any], now: str
) -> list[dict[str, Any]]:
    """The list with one condition replaced; lastTransitionTime changes only with its status."""
    kept = [dict(c) for c in conditions if c["type"] != new["type"]]
    old = next((c for c in conditions if c["type"] == new["type"]), None)
    same = old is not None and old.get("status") == new["status"]
    since = old.get("lastTransitionTime", now) if same and old is not None else now
    return [*kept, {**new, "lastTransitionTime": since}]


def timestamp(seconds: float) -> str:
    """A time as RFC 3339 in UTC with whole seconds, the form of Kubernetes' metav1.Time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds_of(stamp: str) -> float:
    """Seconds since the epoch of a time written by `timestamp`."""
    import calendar

    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
