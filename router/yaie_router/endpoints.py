"""Which models exist here and which engines serve them now: the router's view of its namespace.

`Directory` is fed with InferenceModels and EndpointSlices (by `watch.py`) and answers with frozen
`Model` values. It never forgets anything by itself: while the API server is away, the last-known
endpoints keep serving. It knows nothing of health or load (`health.py`, `admission.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from yaie_api.names import HTTP_PORT, HTTP_PORT_NAME, LABEL_MODEL

Object = Mapping[str, Any]
Policy = Literal["PrefixAffinity", "LeastLoaded", "RoundRobin"]
DEFAULT_LOAD_FACTOR: Final = 1.25

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Endpoint:
    """One engine that can take requests. `name` is its pod's name."""

    name: str
    address: str
    port: int

    @property
    def base_url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True)
class Model:
    """One InferenceModel as the router sees it. `awaiting` says why it may have no endpoint."""

    name: str
    served: str
    aliases: tuple[str, ...] = ()
    created_s: int = 0
    context_length: int | None = None
    policy: Policy = "PrefixAffinity"
    load_factor: float = DEFAULT_LOAD_FACTOR
    timeout_s: float | None = None
    awaiting: str = ""
    endpoints: tuple[Endpoint, ...] = ()


class Table(Generic[T]):
    """The objects of one resource, parsed, by name; calls `changed` after each difference."""

    def __init__(self, parse: Callable[[Object], T], changed: Callable[[], None]) -> None:
        self._parse = parse
        self._changed = changed
        self.rows: dict[str, T] = {}
        self.listed = False

    def replace(self, objects: Iterable[Object]) -> None:
        """Take a full list: what is not in it is gone."""
        self.rows = {_name(item): self._parse(item) for item in objects}
        self.listed = True
        self._changed()

    def put(self, item: Object) -> None:
        name, row = _name(item), self._parse(item)
        if self.rows.get(name) != row:
            self.rows[name] = row
            self._changed()

    def drop(self, item: Object) -> None:
        if self.rows.pop(_name(item), None) is not None:
            self._changed()


class Directory:
    """Served name → model with its ready endpoints."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.models: Table[Model] = Table(parse_model, self._rebuild)
        self.slices: Table[tuple[str, tuple[Endpoint, ...]]] = Table(parse_slice, self._rebuild)
        self._by_served_name: dict[str, Model] = {}
        self._all: tuple[Model, ...] = ()
        self._on_change = changed

    @property
    def is_listed(self) -> bool:
        """Both resources have been listed at least once."""
        return self.models.listed and self.slices.listed

    def find(self, served_name: str) -> Model | None:
        return self._by_served_name.get(served_name)

    def all(self) -> tuple[Model, ...]:
        """Every model, sorted by name."""
        return self._all

    def served_names(self) -> list[str]:
        """Every name that a request may use, aliases included."""
        return sorted(self._by_served_name)

    def _rebuild(self) -> None:
        endpoints: dict[str, dict[str, Endpoint]] = {}
        for _, (model, ready) in sorted(self.slices.rows.items()):
            for endpoint in ready:  # a dual-stack pod is in two slices: the first address wins
                endpoints.setdefault(model, {}).setdefault(endpoint.name, endpoint)
        self._all = tuple(
            replace(model, endpoints=tuple(sorted(endpoints.get(name, {}).values())))
            for name, model in sorted(self.models.rows.items())
        )
        self._by_served_name = _index(self._all)
        self._on_change()


def parse_model(item: Object) -> Model:
    """Read what routing needs of an InferenceModel; the API server has validated the rest."""
    meta, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    source, routing = spec.get("model", {}), spec.get("routing", {})
    return Model(
        name=meta["name"],
        served=source.get("servedName") or meta["name"],
        aliases=tuple(source.get("aliases") or ()),
        created_s=_epoch_s(meta.get("creationTimestamp")),
        context_length=status.get("model", {}).get("contextLength"),
        policy=routing.get("policy", "PrefixAffinity"),
        load_factor=max(1.0, float(routing.get("loadFactor", DEFAULT_LOAD_FACTOR))),
        timeout_s=routing.get("timeoutSeconds"),
        awaiting=_awaiting(spec, status),
    )


def parse_slice(item: Object) -> tuple[str, tuple[Endpoint, ...]]:
    """(model, endpoints that take new requests) of one EndpointSlice."""
    labels = item["metadata"].get("labels") or {}
    port = _port(item.get("ports") or ())
    ready = (entry for entry in item.get("endpoints") or () if _takes_requests(entry))
    return labels.get(LABEL_MODEL, ""), tuple(
        Endpoint(
            name=(entry.get("targetRef") or {}).get("name") or entry["addresses"][0],
            address=entry["addresses"][0],
            port=port,
        )
        for entry in ready
    )


def _takes_requests(entry: Object) -> bool:
    conditions = entry.get("conditions") or {}
    is_ready = conditions.get("ready") is not False  # absent means ready
    return bool(entry.get("addresses")) and is_ready and not conditions.get("terminating")


def _port(ports: Iterable[Object]) -> int:
    by_name = {port.get("name") or "": port.get("port") for port in ports}
    return int(by_name.get(HTTP_PORT_NAME) or next(iter(by_name.values()), None) or HTTP_PORT)


def _awaiting(spec: Object, status: Object) -> str:
    """What stands between this model and its first ready engine, from its conditions."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("reason") == "Idle":
            return "it is scaled to zero"
        if condition.get("status") != "True" and condition.get("type") not in _NOT_AWAITED:
            told = condition.get("message") or condition.get("reason", "")
            return f"{condition.get('type')} is {condition.get('status')}: {told.rstrip('.')}"
    if spec.get("suspend"):
        return "it is suspended"
    if spec.get("replicas") == 0:
        return "it has 0 replicas"
    return "its engines are starting" if status else "the operator has not acted on it yet"


_NOT_AWAITED: Final = ("Progressing", "ScalingActive", "RouterReady")


def _index(models: Iterable[Model]) -> dict[str, Model]:
    """Served names win over aliases, the oldest model wins among equals."""
    index: dict[str, Model] = {}
    oldest_first = sorted(models, key=lambda model: (model.created_s, model.name))
    for model in oldest_first:
        index.setdefault(model.served, model)
    for model in oldest_first:
        for alias in model.aliases:
            index.setdefault(alias, model)
    return index


def _epoch_s(timestamp: str | None) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])
