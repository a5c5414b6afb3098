"""Ownership of fields: Kubernetes' server-side apply on plain JSON. Pure.

A field is a path of strings, `f:NAME` for a key of an object and `k:{…}` for an item of a list that
has keys (containers by name, ports by number); other lists are owned as a whole. Ownership is
stored in `metadata.managedFields` in Kubernetes' format (FieldsV1).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from yaie_local.objects import with_metadata
from yaie_operator.cluster import ConflictError, Object

Field = tuple[str, ...]
Owners = dict[tuple[str, str], frozenset[Field]]
"""Fields of each (manager, operation)."""

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
}
"""Keys of keyed lists, by the field's name; the first key that all items have is used."""

_UNOWNED: Final = frozenset(
    {("f:apiVersion",), ("f:kind",)}
    | {
        ("f:metadata", f"f:{key}")
        for key in (
            "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
            "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds",
        )
    }
)  # fmt: skip


def apply(live: Object, applied: Object, *, manager: str, force: bool) -> Object:
    """Merge `applied` into `live`, and remove fields that `manager` applied before and omits now.

    Raises:
        ConflictError: another manager owns a field with another value, unless `force`.

    """
    owners = owners_of(live)
    me = (manager, "Apply")
    wanted = fields_of(applied)
    owners = _settle(owners, me, wanted, live, applied, force=force)
    others = frozenset().union(*(f for who, f in owners.items() if who != me))
    dropped = owners.get(me, frozenset()) - wanted - others
    merged = remove(merge(live, applied), dropped)
    return with_owners(merged, {**owners, me: wanted})


def record_update(old: Object | None, new: Object, *, manager: str) -> Object:
    """`new`, in which `manager` owns the fields that differ from `old` (operation Update)."""
    before = values_of(old) if old is not None else {}
    after = values_of(new)
    changed = frozenset(field for field, value in after.items() if before.get(field) != value)
    gone = frozenset(before) - frozenset(after)
    owners = {who: fields - changed - gone for who, fields in owners_of(new).items()}
    me = (manager, "Update")
    return with_owners(new, {**owners, me: owners.get(me, frozenset()) | changed})


def owners_of(obj: Object) -> Owners:
    return {
        (entry["manager"], entry["operation"]): frozenset(_flatten(entry["fieldsV1"]))
        for entry in obj["metadata"].get("managedFields") or ()
    }


def with_owners(obj: Object, owners: Owners) -> Object:
    entries = [
        {
            "manager": manager,
            "operation": operation,
            "apiVersion": obj["apiVersion"],
            "fieldsType": "FieldsV1",
            "fieldsV1": _nest(fields),
        }
        for (manager, operation), fields in sorted(owners.items())
        if fields
    ]
    return with_metadata(obj, managedFields=entries or None)


def fields_of(obj: Object) -> frozenset[Field]:
    """The fields that an object sets, without identity and metadata set by the server."""
    return frozenset(values_of(obj))


def values_of(obj: Object) -> dict[Field, Any]:
    """Each field of an object that can be owned, with its value; items of keyed lists included."""
    found: dict[Field, Any] = {}
    _collect(obj, (), found)
    return {f: v for f, v in found.items() if not any(f[: len(u)] == u for u in _UNOWNED)}


def merge(live: Any, applied: Any, name: str = "") -> Any:
    """`applied` over `live`: objects and keyed lists merge, everything else is replaced."""
    if isinstance(live, Mapping) and isinstance(applied, Mapping):
        both = {key: merge(live[key], applied[key], key) for key in applied.keys() & live.keys()}
        return {**live, **applied, **both}
    key = _list_key(name, [*_items(live), *_items(applied)])
    if key is None:
        return applied
    new = {item[key]: item for item in applied}
    kept = {item[key]: item for item in live}
    order = [*kept, *(k for k in new if k not in kept)]
    return [
        merge(kept[k], new[k]) if k in kept and k in new else new.get(k, kept.get(k)) for k in order
    ]


def remove(value: Any, fields: Iterable[Field]) -> Any:
    """`value` without the fields; objects and lists that become empty are removed too."""
    groups: dict[str, list[Field]] = {}
    for head, *rest in fields:
        groups.setdefault(head, []).append(tuple(rest))
    if isinstance(value, Mapping):
        return _remove_keys(value, groups)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _remove_items(value, groups)
    return value


def _remove_keys(value: Mapping[str, Any], groups: Mapping[str, list[Field]]) -> dict[str, Any]:
    kept = {}
    for key, item in value.items():
        below = groups.get(f"f:{key}")
        if below is None:
            kept[key] = item
        elif () not in below:
            smaller = remove(item, below)
            if smaller not in ({}, []):
                kept[key] = smaller
    return kept


def _remove_items(value: Sequence[Any], groups: Mapping[str, list[Field]]) -> list[Any]:
    kept = []
    for item in value:
        mark = next((head for head in groups if _has_key(item, head)), None)
        if mark is None:
            kept.append(item)
        elif (".",) not in groups[mark]:
            kept.append(remove(item, groups[mark]))
    return kept


def _settle(
    owners: Owners,
    me: tuple[str, str],
    wanted: frozenset[Field],
    live: Object,
    applied: Object,
    *,
    force: bool,
) -> Owners:
    """The owners after `me` takes over the fields whose values change.

    Raises ConflictError if another manager owns such a field, unless `force`.
    """
    now, then = values_of(applied), values_of(live)
    contested = frozenset(f for f in wanted if f in then and then[f] != now[f])
    for who, fields in owners.items():
        taken = fields & contested
        if who != me and taken and not force:
            dotted = ", ".join(sorted(".".join(p.removeprefix("f:") for p in f) for f in taken))
            raise ConflictError(f'conflict with "{who[0]}": {dotted}')
    return {who: (f if who == me else f - contested) for who, f in owners.items()}


def _collect(value: Any, path: Field, found: dict[Field, Any]) -> None:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            _collect(item, (*path, f"f:{key}"), found)
        return
    name = path[-1].removeprefix("f:") if path else ""
    key = _list_key(name, _items(value))
    if key is None:
        found[path] = value
        return
    for item in value:
        mark = _mark(key, item)
        found[*path, mark, "."] = None
        _collect(item, (*path, mark), found)


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _list_key(name: str, items: Sequence[Any]) -> str | None:
    """The key of a non-empty keyed list; None for every other value."""
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    keys = LIST_KEYS.get(name, ())
    return next((key for key in keys if all(key in item for item in items)), None)


def _mark(key: str, item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: item[key]}, separators=(",", ":"))


def _has_key(item: Any, mark: str) -> bool:
    if not isinstance(item, Mapping) or not mark.startswith("k:"):
        return False
    return all(item.get(k) == v for k, v in json.loads(mark[2:]).items())


def _nest(fields: Iterable[Field]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field in sorted(fields):
        node = tree
        for step in field:
            node = node.setdefault(step, {})
    return tree


def _flatten(tree: Mapping[str, Any], path: Field = ()) -> Iterable[Field]:
    for step, below in tree.items():
        if below:
            yield from _flatten(below, (*path, step))
        else:
            yield (*path, step)
