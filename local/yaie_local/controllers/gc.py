"""Garbage collection by ownerReferences: an object is deleted with its last owner. Pure."""

from collections.abc import Iterable

from yaie_local.objects import is_terminating, owner_uids, uid_of
from yaie_operator.cluster import Object


def orphans(objects: Iterable[Object]) -> list[Object]:
    """Objects that have owner references, but no existing owner, and are not terminating."""
    everything = list(objects)
    alive = {uid_of(obj) for obj in everything}
    return [
        obj
        for obj in everything
        if (owners := owner_uids(obj)) and not alive & set(owners) and not is_terminating(obj)
    ]
