"""What an administrator decides for a whole cluster: how router pods are placed, what routers bear,
and who may reach pods. The chart writes it as JSON into environment variables; here it is checked,
once.

What stands inside a toleration or an affinity is the API server's to check.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, Self, TypeVar

from yaie_api import names

OWN_LABELS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    names.LABEL_MANAGED_BY,
)
"""Labels by which the operator finds its objects; also all of the group yaie.dev."""

Json = Mapping[str, Any]
Part = TypeVar("Part")


@dataclass(frozen=True)
class PodSettings:
    """Fields of a pod that an administrator sets, as Kubernetes has them.

    A topology spread constraint without a labelSelector gets the one of the pods themselves.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    affinity: Json = field(default_factory=dict)
    topology_spread_constraints: tuple[Json, ...] = ()
    priority_class_name: str = ""
    resources: Json = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Json) -> Self:
        """Read the JSON form.

        Raises:
            ValueError: a field is unknown or of the wrong type; the error names it.

        """
        _refuse_unknown(data, *_POD_FIELDS)
        labels = _strings(data, "labels")
        for name in labels:
            if name in OWN_LABELS or name.startswith(f"{names.GROUP}/"):
                raise ValueError(f"labels: {name} is the operator's; choose another name")
        return cls(
            labels=labels,
            annotations=_strings(data, "annotations"),
            node_selector=_strings(data, "nodeSelector"),
            tolerations=_objects(data, "tolerations"),
            affinity=_typed(data, "affinity", dict),
            topology_spread_constraints=_objects(data, "topologySpreadConstraints"),
            priority_class_name=_typed(data, "priorityClassName", str),
            resources=_typed(data, "resources", dict),
        )


_POD_FIELDS: Final = (
    "labels", "annotations", "nodeSelector", "tolerations", "affinity",
    "topologySpreadConstraints", "priorityClassName", "resources",
)  # fmt: skip


ROUTER_LIMITS: Final[Mapping[str, tuple[str, type[int] | type[float]]]] = {
    "maxBodyBytes": ("--max-body-bytes", int),
    "maxBufferedBytes": ("--max-buffered-bytes", int),
    "maxUnfinishedBodies": ("--max-unfinished-bodies", int),
    "maxInFlight": ("--max-in-flight", int),
    "headerTimeoutSeconds": ("--header-timeout-s", float),
    "bodyTimeoutSeconds": ("--body-timeout-s", float),
    "clientStallSeconds": ("--client-stall-s", float),
    "connectTimeoutSeconds": ("--connect-timeout-s", float),
    "firstTokenTimeoutSeconds": ("--first-token-timeout-s", float),
    "promptBytesPerSecond": ("--prompt-bytes-per-s", float),
    "interTokenTimeoutSeconds": ("--inter-token-timeout-s", float),
    "silenceTimeoutSeconds": ("--silence-timeout-s", float),
    "suspectAfterSeconds": ("--suspect-after-s", float),
    "maxReplays": ("--max-replays", int),
    "maxReplayBytes": ("--max-replay-bytes", int),
    "drainTimeoutSeconds": ("--drain-timeout-s", float),
}
"""Limits and deadlines of routers, by their names in the chart: the router's flag, and its type."""
_SWITCHES: Final = frozenset(("maxReplays",))
"""Those that 0 switches off."""
_DRAIN: Final = "drainTimeoutSeconds"
_DRAIN_S: Final = 300
"""The router's own default."""


@dataclass(frozen=True)
class RouterLimits:
    """Limits and deadlines of routers, by the names of ROUTER_LIMITS. One that is absent has the
    router's own default.
    """

    given: Mapping[str, float] = field(default_factory=dict)

    @property
    def drain_s(self) -> int:
        """Whole seconds that streams have to finish after SIGTERM."""
        return ceil(self.given.get(_DRAIN, _DRAIN_S))

    def arguments(self) -> list[str]:
        """The router's command line for what is given."""
        return [
            word
            for name, value in self.given.items()
            for word in (ROUTER_LIMITS[name][0], f"{value:g}" if value % 1 else str(int(value)))
        ]

    @classmethod
    def parse(cls, data: Json) -> Self:
        """Read the JSON form.

        Raises:
            ValueError: a name is unknown, or its value no number above 0 (or 0, for what that
                switches off); the error names it.

        """
        _refuse_unknown(data, *ROUTER_LIMITS)
        for name, value in data.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_off = value == 0 and name in _SWITCHES
            if not is_number or not (is_off or 0 < value < float("inf")):
                raise ValueError(f"{name} is {value!r}; write a number above 0")
            if ROUTER_LIMITS[name][1] is int and value % 1:
                raise ValueError(f"{name} is {value!r}; write a whole number")
        return cls({name: data[name] for name in ROUTER_LIMITS if name in data})


@dataclass(frozen=True)
class NetworkSettings:
    """Who may connect to engines and routers, as lists of Kubernetes' NetworkPolicyPeer, and where
    downloads may connect to.

    Attributes:
        engine_clients: beside the routers of their namespace: the operator and Prometheus, which
            read metrics. They alone may read those of routers, too.
        router_clients: empty: everyone.
        download_egress: NetworkPolicyEgressRules of downloads, beside DNS; empty: everywhere.

    """

    engine_clients: tuple[Json, ...] = ()
    router_clients: tuple[Json, ...] = ()
    download_egress: tuple[Json, ...] = ()

    @classmethod
    def parse(cls, data: Json) -> Self:
        """Read the JSON form.

        Raises:
            ValueError: a field is unknown or of the wrong type; the error names it.

        """
        _refuse_unknown(data, "engineClients", "routerClients", "downloadEgress")
        clients = {name: _objects(data, name) for name in ("engineClients", "routerClients")}
        for name, peers in clients.items():
            for peer in peers:
                if not peer:
                    raise ValueError(f"{name}: an empty peer means nobody; leave it out")
                _refuse_unknown(peer, "podSelector", "namespaceSelector", "ipBlock", at=name)
        egress = _objects(data, "downloadEgress")
        for rule in egress:
            _refuse_unknown(rule, "to", "ports", at="downloadEgress")
        return cls(clients["engineClients"], clients["routerClients"], egress)


def read_pod(environ: Mapping[str, str], name: str) -> PodSettings:
    """Pod settings of a variable; the defaults if it is unset or empty.

    Raises:
        ValueError: the variable is no JSON or has an invalid field; the error names both.

    """
    return _read(environ, name, PodSettings.parse) or PodSettings()


def read_router_limits(environ: Mapping[str, str], name: str) -> RouterLimits:
    """Limits of a variable, with the errors of `read_pod`; none if it is unset or empty."""
    return _read(environ, name, RouterLimits.parse) or RouterLimits()


def read_network(environ: Mapping[str, str], name: str) -> NetworkSettings | None:
    """Network settings of a variable, with the errors of `read_pod`; None: unset or empty."""
    return _read(environ, name, NetworkSettings.parse)


def _read(environ: Mapping[str, str], name: str, parse: Callable[[Json], Part]) -> Part | None:
    text = environ.get(name, "")
    if not text:
        return None
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("write a JSON object")  # noqa: TRY004, TRY301 - one handler names the variable
        return parse(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _refuse_unknown(data: Json, *known: str, at: str = "") -> None:
    for name in data:
        if name not in known:
            place = f"{at}: " if at else ""
            raise ValueError(f"{place}{name} is unknown; write one of {', '.join(known)}")


def _typed(data: Json, name: str, kind: type[Any]) -> Any:
    value = data.get(name, kind())
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected {'a text' if kind is str else 'an object'}")  # noqa: TRY004 - like every wrong setting
    return value


def _strings(data: Json, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] = _typed(data, name, dict)
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{name}: every value is a text; put it in quotes")
    return found


def _objects(data: Json, name: str) -> tuple[Json, ...]:
    found = data.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name}: expected a list of objects")
    return tuple(found)
