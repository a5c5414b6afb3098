"""The registry of resource types: what the operator reads, and every child that it writes.

From it follow the watches and full lists, what one reconcile observes, the operator's rights
(`yaie_operator.rbac`), and what is deleted after a namespace's last model. The manifests are built
in `yaie_operator.resources`.
"""

from dataclasses import dataclass
from typing import Final

from yaie_api import names
from yaie_operator.cluster import Kind

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


@dataclass(frozen=True)
class Child:
    """One object that the operator writes. `name`: its fixed name; "": the model's name."""

    kind: Kind
    name: str = ""


OF_MODEL: Final = (Child(SERVICE), Child(DISRUPTION_BUDGET), Child(DEPLOYMENT))
"""Owned by their model: the garbage collector deletes them with it."""

OF_CACHE: Final = (Child(CLAIM), Child(JOB))
"""Owned by a model with `cache.mode: pvc`, and named after it (`resources.weights.object_name`)."""

OF_NAMESPACE: Final = (
    Child(SECRET, names.ROUTER_SECRET),
    Child(SERVICE_ACCOUNT, names.ROUTER),
    Child(ROLE_BINDING, names.ROUTER),
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

ONLY_NAMES: Final = {
    child.kind: child.name
    for child in OF_NAMESPACE
    if child.kind not in {other.kind for other in OF_MODEL}
}
"""Kinds of which the operator may read and write one name only; lists and watches select it."""

OURS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
"""Label selector of all objects that the operator created."""

BY_NAME: Final = {kind.kind: kind for kind in (INFERENCE_MODEL, *WATCHED)}
