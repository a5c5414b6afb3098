"""The RBAC rules that the operator and the routers need, and no more.

Tests compare the chart's roles with these lists; `python -m yaie_operator --print-rbac` prints
them.
"""

from typing import Any, Final

from yaie_api import names

_READ: Final = ["get", "list", "watch"]
_KEEP: Final = [*_READ, "create", "patch"]

OPERATOR: Final[list[dict[str, Any]]] = [
    {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": _READ},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/status"], "verbs": ["patch"]},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/scale"], "verbs": ["patch"]},
    # Needed on the owner if the cluster enforces OwnerReferencesPermissionEnforcement.
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": _KEEP},
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps", "serviceaccounts"],
        "verbs": _KEEP,
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    # Restricted to one name: no other Secret can be read.
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [names.ROUTER_SECRET],
        "verbs": _KEEP,
    },
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": _KEEP},
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

ALL: Final = {"operator": OPERATOR, "leases": LEASES, "router": ROUTER}
