"""InferenceModels and EndpointSlices, parsed to the frozen values that routing needs.

Pure. The API server has validated the objects; what has another type nevertheless is refused here,
because it would fail where nobody expects it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from yaie_api.names import HTTP_PORT, HTTP_PORT_NAME, LABEL_MODEL, ROUTER
from yaie_api.resource.capacity import MAX_NUM_SEQS
from yaie_router.discovery.stages import NOT_STARTED, stage_of

Object = Mapping[str, Any]
Policy = Literal["PrefixAffinity", "LeastLoaded", "RoundRobin"]
Parsed = TypeVar("Parsed", "Model", "Slice", "Endpoint")
DEFAULT_LOAD_FACTOR: Final = 1.25
_SERVICE: Final = "kubernetes.io/service-name"


@dataclass(frozen=True, order=True)
class Endpoint:
    """One engine that can take requests. `name` is its pod's name."""

    name: str
    address: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]

    @property
    def base_url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True)
class Model:
    """What routing needs of one InferenceModel. `awaiting` says why it may have no endpoint, and
    `stage` the same for clients that wait for the first one.

    `suspended`: no engine may run. `wakes`: it goes to zero when idle, and a request starts it.
    `max_num_seqs`: sequences that one engine runs at once, if the model says it.
    `context_tokens`: longest prompt and answer together; None: no engine was ready yet.
    `resting` endpoints take no new work (not ready, or ending) but still have what they stored.
    `waiting`: those of them that are not ending; `reached`: those of these that answer.
    """

    name: str
    served: str
    aliases: tuple[str, ...] = ()
    created_s: int = 0
    policy: Policy = "PrefixAffinity"
    load_factor: Annotated[float, msgspec.Meta(ge=1, le=1000)] = DEFAULT_LOAD_FACTOR
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    awaiting: str = ""
    stage: str = NOT_STARTED
    suspended: bool = False
    wakes: bool = False
    context_tokens: int | None = None
    max_num_seqs: Annotated[int, msgspec.Meta(ge=1)] = MAX_NUM_SEQS
    endpoints: tuple[Endpoint, ...] = ()
    resting: tuple[Endpoint, ...] = ()
    waiting: tuple[Endpoint, ...] = ()
    reached: tuple[Endpoint, ...] = ()


@dataclass(frozen=True)
class Slice:
    """The endpoints of one EndpointSlice, by whether they take new requests. `of_routers`: they are
    this router and its like.
    """

    model: str
    of_routers: bool = False
    ready: tuple[Endpoint, ...] = ()
    resting: tuple[Endpoint, ...] = ()
    waiting: tuple[Endpoint, ...] = ()


def parse_model(item: Object) -> Model:
    """Read what routing needs of an InferenceModel.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: it is broken.

    """
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    source, routing = spec.get("model") or {}, spec.get("routing") or {}
    model = Model(
        name=meta["name"],
        served=source.get("servedName") or meta["name"],
        aliases=tuple(source.get("aliases") or ()),
        created_s=_epoch_s(meta.get("creationTimestamp")),
        policy=routing.get("policy") or "PrefixAffinity",
        load_factor=max(1.0, float(routing.get("loadFactor") or DEFAULT_LOAD_FACTOR)),
        timeout_s=_seconds(routing.get("timeoutSeconds")),
        awaiting=_awaiting(spec, status),
        stage=stage_of(status),
        suspended=bool(spec.get("suspend")),
        wakes=_wakes(spec),
        max_num_seqs=(spec.get("engine") or {}).get("maxNumSeqs") or MAX_NUM_SEQS,
        context_tokens=(status.get("model") or {}).get("contextLength") or None,
    )
    return _checked(model)


def parse_slice(item: Object) -> Slice:
    """Read what routing needs of one EndpointSlice.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: it is broken.

    """
    labels = item["metadata"].get("labels") or {}
    port = _port(item.get("ports") or ())
    entries = [entry for entry in item.get("endpoints") or () if entry.get("addresses")]
    one = Slice(
        labels.get(LABEL_MODEL, ""),
        of_routers=labels.get(_SERVICE) == ROUTER,
        ready=tuple(_endpoint(entry, port) for entry in entries if _takes_requests(entry)),
        resting=tuple(_endpoint(entry, port) for entry in entries if not _takes_requests(entry)),
        waiting=tuple(
            _endpoint(entry, port)
            for entry in entries
            if not _takes_requests(entry) and not _is_ending(entry)
        ),
    )
    return _checked(one)


def _checked(parsed: Parsed) -> Parsed:
    """Return it, if each field has the type that it says. Raises ValueError."""
    return msgspec.convert(vars(parsed), type(parsed))


def _endpoint(entry: Object, port: int) -> Endpoint:
    address = entry["addresses"][0]
    name = (entry.get("targetRef") or {}).get("name") or address
    return _checked(Endpoint(name, address, port))


def _takes_requests(entry: Object) -> bool:
    conditions = entry.get("conditions") or {}
    is_ready = conditions.get("ready") is not False  # absent means ready
    return is_ready and not _is_ending(entry)


def _is_ending(entry: Object) -> bool:
    return bool((entry.get("conditions") or {}).get("terminating"))


def _port(ports: Iterable[Object]) -> int:
    by_name = {port.get("name") or "": port.get("port") for port in ports}
    return int(by_name.get(HTTP_PORT_NAME) or next(iter(by_name.values()), None) or HTTP_PORT)


def _awaiting(spec: Object, status: Object) -> str:
    """Say, from a model's conditions, why it may have no ready engine yet."""
    conditions = status.get("conditions") or ()
    if any(one.get("type") == "EnginesReady" and one.get("reason") == "Idle" for one in conditions):
        return "it is scaled to zero" + ("; a request starts it" if _wakes(spec) else "")
    for condition in conditions:
        if condition.get("status") != "True" and condition.get("type") not in _NOT_AWAITED:
            told = condition.get("message") or condition.get("reason", "")
            return f"{condition.get('type')} is {condition.get('status')}: {told.rstrip('.')}"
    if spec.get("suspend"):
        return "it is suspended"
    if spec.get("replicas") == 0:
        return "it has 0 replicas"
    return "its engines are starting" if status else "the operator has not acted on it yet"


def _seconds(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]  # raises if it is none


def _wakes(spec: Object) -> bool:
    return (spec.get("autoscaling") or {}).get("min") == 0


_NOT_AWAITED: Final = ("Progressing", "RouterReady", "ScalingActive")


def _epoch_s(timestamp: str | None) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
