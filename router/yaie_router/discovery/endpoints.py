"""The models of the namespace, and the engines that serve them now.

`watch.py` puts InferenceModels and EndpointSlices into a `Directory`, which returns frozen `Model`
values. A `Directory` drops nothing by itself: while the API server is away, the endpoints that were
known last stay in use. It knows nothing of health or load (`health.py`, `admission.py`).
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from yaie_api.logs import fields
from yaie_api.response_id import mark_in, mark_of_pod
from yaie_router.discovery.objects import Endpoint, Model, Object, Slice, parse_model, parse_slice

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Holder:
    """The engine that has a stored response, and the model that it serves."""

    model: Model
    endpoint: Endpoint


class Table(Generic[T]):
    """The parsed objects of one resource, by name. It calls `changed` after each change.

    An object that cannot be read is skipped, and what was known of it before is kept: it must not
    end the router for all the others.
    """

    def __init__(self, parse: Callable[[Object], T], changed: Callable[[], None]) -> None:
        self._parse = parse
        self._changed = changed
        self.rows: dict[str, T] = {}
        self.listed = False

    def replace(self, objects: Iterable[Object]) -> None:
        """Take a complete list: objects that are not in it are gone."""
        named = [(name, item) for item in objects if (name := _name(item))]
        rows = {name: self._row(name, item) for name, item in named}
        self.rows = {name: row for name, row in rows.items() if row is not None}
        self.listed = True
        self._changed()

    def put(self, item: Object) -> None:
        name = _name(item)
        row = self._row(name, item) if name else None
        if row is not None and self.rows.get(name) != row:
            self.rows[name] = row
            self._changed()

    def drop(self, item: Object) -> None:
        if self.rows.pop(_name(item), None) is not None:
            self._changed()

    def _row(self, name: str, item: Object) -> T | None:
        """Parse an object; if it is broken, return what was known of it, if anything."""
        try:
            return self._parse(item)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            log.warning("object skipped", extra=fields(object=name, reason=reason))
            return self.rows.get(name)


class Directory:
    """Finds models by served name, with their ready endpoints."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.models: Table[Model] = Table(parse_model, self._rebuild)
        self.slices: Table[Slice] = Table(parse_slice, self._rebuild)
        self._by_served_name: dict[str, Model] = {}
        self._all: tuple[Model, ...] = ()
        self._holders: dict[str, Holder] = {}
        self._reached: frozenset[str] = frozenset()
        self._on_change = changed

    def reach(self, names: frozenset[str]) -> None:
        """Take note of the waiting endpoints that answer (`reach.Reach`)."""
        if names != self._reached:
            self._reached = names
            self._rebuild()

    @property
    def is_listed(self) -> bool:
        """Whether both resources have been listed at least once."""
        return self.models.listed and self.slices.listed

    @property
    def routers(self) -> int:
        """How many routers of the namespace are ready; 0: it is not known."""
        slices = (row for row in self.slices.rows.values() if row.of_routers)
        return len({endpoint.name for row in slices for endpoint in row.ready})

    def find(self, served_name: str) -> Model | None:
        return self._by_served_name.get(served_name)

    def current(self, model: Model) -> Model:
        """Return the model as it is now; as it was, if it is gone."""
        return self.find(model.served) or model

    def holder(self, response_id: str) -> Holder | None:
        """Return the engine that has this stored response in memory; None: it is gone."""
        mark = mark_in(response_id)
        return None if mark is None else self._holders.get(mark)

    def all(self) -> tuple[Model, ...]:
        """Every model, sorted by name."""
        return self._all

    def served_names(self) -> list[str]:
        """Every name that a request may use, aliases included."""
        return sorted(self._by_served_name)

    def _rebuild(self) -> None:
        slices: defaultdict[str, list[Slice]] = defaultdict(list)
        for _, row in sorted(self.slices.rows.items()):
            slices[row.model].append(row)
        self._all = tuple(
            _with_endpoints(model, slices[name], self._reached)
            for name, model in sorted(self.models.rows.items())
        )
        self._holders = _holders(self._all)
        self._by_served_name = _index(self._all)
        self._on_change()


def _with_endpoints(model: Model, slices: Sequence[Slice], reached: frozenset[str]) -> Model:
    """Return the model with its endpoints: the ready ones, or if none is, those that answer."""
    waiting = _by_name(endpoint for one in slices for endpoint in one.waiting)
    answering = tuple(endpoint for endpoint in waiting if endpoint.name in reached)
    return replace(
        model,
        endpoints=_by_name(endpoint for one in slices for endpoint in one.ready) or answering,
        resting=_by_name(endpoint for one in slices for endpoint in one.resting),
        waiting=waiting,
        reached=answering,
    )


def _by_name(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return each pod once, sorted. A dual-stack pod is in two slices: its first address counts."""
    found: dict[str, Endpoint] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.name, endpoint)
    return tuple(sorted(found.values()))


def _holders(models: Iterable[Model]) -> dict[str, Holder]:
    """Return the holder of each pod's mark (see `yaie_api.response_id`)."""
    return {
        mark_of_pod(endpoint.name): Holder(model, endpoint)
        for model in models
        for endpoint in (*model.resting, *model.endpoints)
    }


def _index(models: Iterable[Model]) -> dict[str, Model]:
    """Index models by name. Served names win over aliases; of two models the older one wins."""
    index: dict[str, Model] = {}
    oldest_first = sorted(models, key=lambda model: (model.created_s, model.name))
    for model in oldest_first:
        index.setdefault(model.served, model)
    for model in oldest_first:
        for alias in model.aliases:
            index.setdefault(alias, model)
    return index


def _name(item: object) -> str:
    """Return the object's name; "": it has none, so it is no object."""
    meta = item.get("metadata") if isinstance(item, Mapping) else None
    name = meta.get("name") if isinstance(meta, Mapping) else None
    return name if isinstance(name, str) else ""
