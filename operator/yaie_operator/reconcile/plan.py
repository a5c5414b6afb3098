"""Decides which writes make the observed objects match the desired ones. Pure.

Only fields that the operator sets are compared, in the API server's normal form, so a second pass
over an unchanged cluster plans no write. Objects of other owners are never written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.reconcile.drift import has_foreign_fields, has_foreign_keys
from yaie_operator.reconcile.observe import Ref, SharedView
from yaie_operator.reconcile.quantity import amount
from yaie_operator.resources.shared import ANNOTATION_APPLIED
from yaie_operator.watch import kinds


@dataclass(frozen=True)
class Apply:
    """Write `manifest`. `observed`: the object as last seen; None: it does not exist. `replaces`:
    with an update, because others have added fields, which an apply would keep.
    """

    manifest: Object
    observed: Object | None
    replaces: bool = False

    @property
    def ref(self) -> Ref:
        return Ref.of(self.manifest)


@dataclass(frozen=True)
class Remove:
    """Delete an object of ours that is not wanted any more."""

    observed: Object

    @property
    def ref(self) -> Ref:
        return Ref.of(self.observed)


@dataclass(frozen=True)
class WritePlan:
    """Writes in order, or the conflicts: objects of other owners that have needed names."""

    writes: tuple[Apply | Remove, ...] = ()
    conflicts: tuple[Ref, ...] = ()


def plan(
    desired: Sequence[Object], observed: Mapping[Ref, Object], ours: Callable[[Object], bool]
) -> WritePlan:
    """Compare desired and observed objects. `ours(live)`: whether the operator may write to it.

    `observed` holds only objects that have a name of a child: ours that are not desired go.
    """
    conflicts = tuple(
        ref
        for ref in map(Ref.of, desired)
        if (live := observed.get(ref)) is not None and not ours(live)
    )
    if conflicts:
        return WritePlan(conflicts=conflicts)
    writes = (_write(obj, observed.get(Ref.of(obj))) for obj in desired)
    wanted = set(map(Ref.of, desired))
    gone = (Remove(obj) for ref, obj in observed.items() if ref not in wanted and ours(obj))
    return WritePlan((*(write for write in writes if write is not None), *gone))


FILLED_IN: Final = frozenset({"PersistentVolumeClaim", "Job"})
"""Kinds to whose spec controllers write, and that cannot be replaced."""


def _write(desired: Object, live: Object | None) -> Apply | None:
    if live is None:
        return Apply(desired, None)
    is_foreign = has_foreign_fields(desired, live) or has_foreign_keys(desired, live)
    if live["kind"] not in FILLED_IN and is_foreign:
        return Apply(desired, live, replaces=True)
    return Apply(desired, live) if differs(desired, live) else None


def is_ours(live: Object, owner_uid: str) -> bool:
    """Whether one of the object's owners has this uid."""
    return any(owner["uid"] == owner_uid for owner in _owners(live))


def is_our_shared(live: Object) -> bool:
    """Whether the operator has written this object, which has no owner: by label or annotation, so
    that the loss of one of them is mended.
    """
    metadata = live["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    is_labelled = labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
    return is_labelled or ANNOTATION_APPLIED in annotations


def foreign_shared(view: SharedView, config: OperatorConfig) -> tuple[Ref, ...]:
    """Objects of other owners that have the names of shared objects that should exist."""
    wanted = (child for child in kinds.OF_NAMESPACE if child.wanted(config))
    refs = (Ref(child.kind.kind, view.namespace, child.name) for child in wanted)
    return tuple(
        ref for ref in refs if (obj := view.objects.get(ref)) is not None and not is_our_shared(obj)
    )


def _owners(live: Object) -> Sequence[Mapping[str, Any]]:
    owners: Sequence[Mapping[str, Any]] = live["metadata"].get("ownerReferences", ())
    return owners


def differs(desired: Object, live: Object) -> bool:
    """Whether a field that the operator sets has another value, or an old field must go."""
    metadata: Mapping[str, Any] = live["metadata"]
    applied = metadata.get("annotations", {}).get(ANNOTATION_APPLIED)
    if applied != desired["metadata"]["annotations"][ANNOTATION_APPLIED]:
        return True
    return not _matches(desired, live, "")


def difference(desired: Object, live: Object) -> str:
    """Path of the first field that the operator sets and that has another value; "" if none has."""
    return "" if _matches(desired, live, "") else _path(desired, live, "", "")


def _path(desired: Any, live: Any, field: str, path: str) -> str:
    """Path of the first difference below `path`; the two differ."""
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        below = ((f"{path}.{key}", key, value, live.get(key)) for key, value in desired.items())
    elif field in MERGE_KEYS and isinstance(live, list | tuple):
        keys = MERGE_KEYS[field]
        found = {_identity(item, keys): item for item in live}
        names_of = ((_identity(item, keys), item) for item in desired)
        below = (
            (f"{path}[{next(filter(None, name), '')}]", "", item, found.get(name))
            for name, item in names_of
        )
    else:
        return path.lstrip(".")
    for deeper, key, wanted, has in below:
        if not _matches(wanted, has, key):
            return _path(wanted, has, key, deeper)
    return path.lstrip(".")


MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port"),
}
"""Lists that the API server merges by these keys; it replaces all other lists as a whole."""

QUANTITIES: Final = frozenset({"requests", "limits"})

WHOLE: Final = frozenset({"selector", "matchLabels", "nodeSelector"})
"""Maps that one writer owns as a whole: managedFields does not tell who has added a key."""


def _matches(desired: Any, live: Any, field: str) -> bool:
    """Whether `live` has every value that `desired` sets. What is equal as a whole is told first:
    that is most of a look's comparisons, and the interpreter does it without a call for each value.
    """
    if desired == live:
        return True
    if isinstance(desired, dict):
        return isinstance(live, dict) and _map_matches(desired, live, field)
    if isinstance(desired, list | tuple):
        return _list_matches(desired, live if isinstance(live, list | tuple) else (), field)
    if live is None:
        return not desired
    return field == "sizeLimit" and _same_amount(desired, live)


def _map_matches(desired: Mapping[str, Any], live: Mapping[str, Any], field: str) -> bool:
    if field in QUANTITIES:
        return all(_same_amount(value, live.get(key)) for key, value in desired.items())
    if field in WHOLE and live.keys() - desired.keys():
        return False
    for key, value in desired.items():  # noqa: SIM110 - a generator costs more than the comparison
        if not _matches(value, live.get(key), key):
            return False
    return True


def _list_matches(desired: Sequence[Any], live: Sequence[Any], field: str) -> bool:
    keys = MERGE_KEYS.get(field)
    if keys is None:
        return len(desired) == len(live) and all(
            _matches(a, b, "") for a, b in zip(desired, live, strict=True)
        )
    by_key = {_identity(item, keys): item for item in live}
    return all(_matches(item, by_key.get(_identity(item, keys)), "") for item in desired)


def _identity(item: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys)


def _same_amount(desired: Any, live: Any) -> bool:
    if live is None:
        return False
    return bool(desired == live) or (
        amount(str(desired)) is not None and amount(str(desired)) == amount(str(live))
    )
