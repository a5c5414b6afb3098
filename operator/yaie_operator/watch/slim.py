"""What is kept of an object: all but most of its managedFields, which may be half of its size."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.watch import kinds

SERVERS: Final = frozenset({"f:metadata", "f:status"})
"""Labels and annotations of others are theirs; the status belongs to controllers."""

_WRITTEN: Final = frozenset(kind.kind for kind in kinds.WRITTEN)


def slim(obj: Object) -> Object:
    """The object without managedFields, but for what others wrote to a child of ours
    (`reconcile.drift`).
    """
    rest = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    written = obj["kind"] in _WRITTEN and writers(obj)
    return {**obj, "metadata": rest | ({"managedFields": written} if written else {})}


def writers(obj: Object) -> Sequence[Mapping[str, Any]]:
    """The entries of managedFields that are not our applies nor of a status."""
    entries: Sequence[Mapping[str, Any]] = obj["metadata"].get("managedFields") or ()
    return [
        entry
        for entry in entries
        if (entry["manager"], entry["operation"]) != (names.FIELD_MANAGER, "Apply")
        and entry.get("subresource") != "status"
        and not SERVERS.issuperset(entry.get("fieldsV1", {}))
    ]
