"""The RBAC rules that the operator and the routers need, and no more.

Tests compare the chart's roles with these lists; `python -m yaie_operator --print-rbac` prints
them.
"""

from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Kind
from yaie_operator.watch import kinds

_FOLLOW: Final = ["list", "watch"]
_READ: Final = ["get", *_FOLLOW]
_APPLY: Final = ["create", "patch"]
_NEVER_REPLACED: Final = (
    kinds.ROLE_BINDING,
    kinds.DISRUPTION_BUDGET,
    kinds.CLAIM,
    kinds.JOB,
)
"""Whatever others can add to them, an apply removes; other kinds are replaced then."""
_WHOLE: Final = {kinds.NETWORK_POLICY: {names.WEIGHTS}}
"""Objects of replaced kinds that have every field of their kind: others can add none."""


def _rule(kind: Kind, verbs: list[str], *only: str) -> dict[str, Any]:
    rule = {"apiGroups": [kind.group], "resources": [kind.plural]}
    return rule | ({"resourceNames": list(only)} if only else {}) | {"verbs": verbs}


def _write(kind: Kind) -> list[str]:
    return [*_APPLY, *(["update"] if kind not in _NEVER_REPLACED else [])]


def _children() -> list[dict[str, Any]]:
    """Rights on the children: writing by name where names are fixed, and deletion of the shared
    objects alone.
    """
    rules = [rule for kind in kinds.WRITTEN for rule in _rules(kind)]
    shared = (child for child in kinds.OF_NAMESPACE if child.kind not in kinds.FIXED_NAMES)
    return [*rules, *(_rule(child.kind, ["delete"], child.name) for child in shared)]


def _rules(kind: Kind) -> list[dict[str, Any]]:
    """Rights on one kind of children. Reading by name works for a single name only."""
    fixed = kinds.FIXED_NAMES.get(kind)
    if fixed is None:
        return [_rule(kind, [*_READ, *_write(kind)])]
    if kind in kinds.ONLY_NAMES:
        return [_rule(kind, [*_READ, *_write(kind), "delete"], *fixed)]
    replaced = (name for name in fixed if name not in _WHOLE.get(kind, ()))
    return [
        _rule(kind, _READ),
        _rule(kind, [*_APPLY, "delete"], *fixed),
        _rule(kind, ["update"], *replaced),
    ]


OPERATOR: Final[list[dict[str, Any]]] = [
    _rule(kinds.INFERENCE_MODEL, _READ),
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/status"], "verbs": ["patch"]},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/scale"], "verbs": ["patch"]},
    *_children(),
    _rule(kinds.JOB, ["delete"]),
    _rule(kinds.POD, _FOLLOW),
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    _rule(kinds.ENDPOINT_SLICE, _FOLLOW),
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": [names.ROUTER_CLUSTER_ROLE],
        "verbs": ["bind"],
    },
]
"""ClusterRole of the operator; a Role per namespace if it watches only some namespaces."""

LEASES: Final[list[dict[str, Any]]] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [names.OPERATOR_LEASE],
        "verbs": ["get", "update"],
    },
]
"""Role in the operator's own namespace."""

ROUTER: Final[list[dict[str, Any]]] = [
    {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": _READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
]
"""ClusterRole `yaie-router`; the operator binds it in each namespace."""

_MODELS: Final = {"apiGroups": [names.GROUP]}
_PARTS: Final = [f"{names.PLURAL}/status", f"{names.PLURAL}/scale"]

VIEW: Final[list[dict[str, Any]]] = [
    {**_MODELS, "resources": [names.PLURAL, *_PARTS], "verbs": _READ},
]
"""Added to the cluster's role `view`, and so to `edit` and `admin`."""

EDIT: Final[list[dict[str, Any]]] = [
    {
        **_MODELS,
        "resources": [names.PLURAL, f"{names.PLURAL}/scale"],
        "verbs": ["create", "update", "patch", "delete", "deletecollection"],
    },
]
"""Added to the cluster's roles `edit` and `admin`."""

ALL: Final = {
    "operator": OPERATOR,
    "leases": LEASES,
    "router": ROUTER,
    "view": VIEW,
    "edit": EDIT,
}
