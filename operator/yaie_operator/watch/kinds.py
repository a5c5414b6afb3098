"""The registry of resource types: what the operator reads, and every child that it writes.

From it follow the watches and full lists, what one reconcile observes, the operator's rights
(`yaie_operator.rbac`), and what is deleted after a namespace's last model. The manifests are built
in `yaie_operator.resources`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from yaie_api import names
from yaie_operator.cluster import Kind
from yaie_operator.config import OperatorConfig

INFERENCE_MODEL: Final = Kind(names.API_VERSION, names.KIND, names.PLURAL)
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
SERVICE: Final = Kind("v1", "Service", "services")
DISRUPTION_BUDGET: Final = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
POD: Final = Kind("v1", "Pod", "pods")
CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
JOB: Final = Kind("batch/v1", "Job", "jobs")
ENDPOINT_SLICE: Final = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
SECRET: Final = Kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")


def _always(_config: OperatorConfig) -> bool:
    return True


def _with_policies(config: OperatorConfig) -> bool:
    return config.network is not None


def _with_spare_router(config: OperatorConfig) -> bool:
    return config.router_replicas > 1


@dataclass(frozen=True)
class Child:
    """One object that the operator writes. `name`: its fixed name; "": the model's name.

    `wanted(config)`: whether it should exist; if not, ours is deleted and another owner's is none
    of our business.
    """

    kind: Kind
    name: str = ""
    wanted: Callable[[OperatorConfig], bool] = _always


OF_MODEL: Final = (Child(SERVICE), Child(DISRUPTION_BUDGET), Child(DEPLOYMENT))
"""Owned by their model: the garbage collector deletes them with it."""

OF_CACHE: Final = (Child(CLAIM), Child(JOB))
"""Owned by a model with `cache.mode: pvc`, and named after it (`resources.mounts.object_name`)."""

OF_NAMESPACE: Final = (
    Child(SECRET, names.ROUTER_SECRET),
    Child(SERVICE_ACCOUNT, names.ROUTER),
    Child(ROLE_BINDING, names.ROUTER),
    Child(NETWORK_POLICY, names.ROUTER, _with_policies),
    Child(NETWORK_POLICY, names.ENGINES, _with_policies),
    Child(NETWORK_POLICY, names.WEIGHTS, _with_policies),
    Child(DISRUPTION_BUDGET, names.ROUTER, _with_spare_router),
    Child(SERVICE, names.ROUTER),
    Child(DEPLOYMENT, names.ROUTER),
)
"""Shared by a namespace's models, in the order in which they are written. They have no owner: the
operator deletes them when a live list shows no model.
"""

WRITTEN: Final = tuple(dict.fromkeys(child.kind for child in (*OF_MODEL, *OF_CACHE, *OF_NAMESPACE)))
WATCHED: Final = (*WRITTEN, POD, ENDPOINT_SLICE)
"""Kinds whose objects carry the operator's label. Deployment controllers create the pods, and
Kubernetes the EndpointSlices, with their Service's labels.
"""

FIXED_NAMES: Final = {
    kind: tuple(child.name for child in OF_NAMESPACE if child.kind == kind)
    for kind in WRITTEN
    if kind not in {child.kind for child in (*OF_MODEL, *OF_CACHE)}
}
"""Kinds of which the operator may write these names only."""

ONLY_NAMES: Final = {kind: fixed[0] for kind, fixed in FIXED_NAMES.items() if len(fixed) == 1}
"""Those of which it may read one name only; lists and watches select it. (A list that may select
several names does not exist.)"""

OURS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
"""Label selector of all objects that the operator created."""

BY_NAME: Final = {kind.kind: kind for kind in (INFERENCE_MODEL, *WATCHED)}
