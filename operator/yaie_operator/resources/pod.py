"""Parts common to the pods of one model, its engines and its download: variables, credentials, and
on which nodes they run.
"""

from typing import Any, Final

from yaie_api import names
from yaie_api.resource.model import GPU_PRODUCT
from yaie_operator.model import ServedModel
from yaie_operator.resources.router import SECRET_KEY
from yaie_operator.resources.shared import owner

TERMINATION_LOG: Final = "/dev/termination-log"
ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - the pod's own emptyDir
    "XDG_CACHE_HOME": "/cache",
    "HF_HOME": "/cache/huggingface",
    "TRITON_CACHE_DIR": "/cache/triton",
}
"""Caches in the pod's own folders, unless the user's variables name others."""

S3_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": True,
    "AWS_SECRET_ACCESS_KEY": True,
    "AWS_SESSION_TOKEN": False,
    "AWS_REGION": False,
    "AWS_ENDPOINT_URL": False,
}
"""Keys of the Secret of an s3:// source, and the variables that they become: is it required?"""


def model_owner(model: ServedModel) -> dict[str, Any]:
    return owner(names.API_VERSION, names.KIND, model.name, model.uid, controller=True)


def placement(model: ServedModel) -> dict[str, Any]:
    """The fields of a pod's spec that say on which nodes it runs."""
    resources = model.spec.resources
    spec: dict[str, Any] = {}
    if nodes := _node_labels(model):
        spec["nodeSelector"] = nodes
    if resources.tolerations:
        spec["tolerations"] = [
            toleration.model_dump(mode="json", by_alias=True, exclude_none=True)
            for toleration in resources.tolerations
        ]
    if resources.priority_class_name:
        spec["priorityClassName"] = resources.priority_class_name
    return spec


def _node_labels(model: ServedModel) -> dict[str, str]:
    """Labels that a node must have."""
    resources = model.spec.resources
    gpu = {GPU_PRODUCT: resources.gpu.type} if resources.gpu.type else {}
    return {**resources.node_selector, **gpu}


def users_names(model: ServedModel) -> set[str]:
    """Names of the user's variables."""
    return {variable.name for variable in model.spec.engine.env}


def users_variables(model: ServedModel) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = []
    for variable in model.spec.engine.env:
        if variable.value_from is not None:
            ref = variable.value_from.secret_key_ref
            env.append(_from_secret(variable.name, ref.name, ref.key))
        else:
            env.append({"name": variable.name, "value": variable.value or ""})
    return env


def credentials(model: ServedModel) -> list[dict[str, Any]]:
    """Variables with which the source can be read, taken from the model's Secret. The user's own
    variables of these names replace them.
    """
    secret, users = model.spec.model.secret_ref, users_names(model)
    if secret is None:
        return []
    wanted = [("HF_TOKEN", secret.key, True)]
    if model.spec.model.source.startswith("s3://"):
        wanted = [(name, name, is_needed) for name, is_needed in S3_KEYS.items()]
    return [
        _from_secret(name, secret.name, key, optional=not is_needed)
        for name, key, is_needed in wanted
        if name not in users
    ]


def prefix_key() -> dict[str, Any]:
    """The secret of the prefix keys, which the routers of the namespace have, too. An engine starts
    without it; it tells nobody then what it has cached.
    """
    return _from_secret(names.ENV_PREFIX_KEY, names.ROUTER_SECRET, SECRET_KEY, optional=True)


def _from_secret(name: str, secret: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    ref: dict[str, Any] = {"name": secret, "key": key}
    if optional:
        ref["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": ref}}
