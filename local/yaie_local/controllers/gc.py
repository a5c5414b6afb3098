"""Garbage collection by ownerReferences: an object whose owners are all gone goes too. Pure."""

from collections.abc import Iterable

from yaie_local.objects import is_terminating, owner_uids, uid_of
from yaie_operator.cluster import Object


def orphans(objects: Iterable[Object]) -> list[Object]:
    """Objects that name owners of which none exists, and that are not already ending."""
    everything = list(objects)
    alive = {uid_of(obj) for obj in everything}
    return [
        obj
        for obj in everything
        if (owners := owner_uids(obj)) and not alive & set(owners) and not is_terminating(obj)
    ]
