"""The resource types that the operator reads or writes."""

from typing import Final

from yaie_api import names
from yaie_operator.cluster import Kind

INFERENCE_MODEL: Final = Kind(names.API_VERSION, names.KIND, names.PLURAL)
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
SERVICE: Final = Kind("v1", "Service", "services")
POD: Final = Kind("v1", "Pod", "pods")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
SECRET: Final = Kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")

CHILDREN: Final = (
    DEPLOYMENT, SERVICE, POD, CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ROLE_BINDING,
)  # fmt: skip
"""Kinds whose objects carry the operator's label; Deployment controllers create the pods."""

OURS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
"""Label selector of all objects that the operator created."""

BY_NAME: Final = {kind.kind: kind for kind in (INFERENCE_MODEL, *CHILDREN)}
