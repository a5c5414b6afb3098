"""The Deployment of one model's engines.

The pod template is a function of the spec and the operator's default image. It is recorded in an
annotation of the Deployment and reused until the relevant part of the spec changes, so a new
operator version or a new default image does not restart engines.
"""

import json
from typing import Any, Final

from yaie_api import names
from yaie_api.engine_config import settings
from yaie_api.resource.model import GPU_PRODUCT, Rollout
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources.overlay import check_size, overlaid, recorded
from yaie_operator.resources.shared import (
    CONTAINER_SECURITY,
    EXIT_MARGIN_S,
    POD_SECURITY,
    SETTLE_S,
    digest,
    http_probe,
    image_pull_secrets,
    labels,
    manifest,
    owner,
)

ANNOTATION_TEMPLATE: Final = f"{names.GROUP}/template"
CONTAINER: Final = "engine"
IN_PLACE: Final = (0, 1)
"""maxSurge and maxUnavailable: an engine leaves its place to its successor, one by one."""
PVC_MOUNT: Final = "/models"
GPU_RESOURCE: Final = "nvidia.com/gpu"
STARTUP_PERIOD_S: Final = 2

SCRATCH: Final = {"tmp": "/tmp", "cache": "/cache", "dshm": "/dev/shm"}  # noqa: S108 - pod mounts
TERMINATION_LOG: Final = "/dev/termination-log"
ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - the pod's own emptyDir
    "XDG_CACHE_HOME": "/cache",
    "HF_HOME": "/cache/huggingface",
    "TRITON_CACHE_DIR": "/cache/triton",
}
"""Caches in the pod's own folders, unless the user's variables name others."""


def deployment(
    model: ServedModel, config: OperatorConfig, *, observed: Object | None, in_place: bool = False
) -> Object:
    """The engines' Deployment.

    Args:
        model: the model.
        config: the operator's settings.
        observed: the existing one if it is ours, else None.
        in_place: there is no room for additional engines (`reconcile.rollout.strategy`).

    Raises:
        TemplateTooLargeError: the pod template cannot be recorded.

    """
    template_hash = hash_of(model)
    known = _recorded(observed, template_hash)
    template = known if known is not None else _template(model, config, template_hash)
    check_size(template)
    return manifest(
        "apps/v1",
        "Deployment",
        name=model.name,
        namespace=model.namespace,
        labels=labels(names.COMPONENT_ENGINE, model.name)
        | {names.LABEL_TEMPLATE_HASH: template_hash},
        annotations={ANNOTATION_TEMPLATE: recorded(template)},
        owners=[model_owner(model)],
        spec={
            "replicas": model.spec.desired_replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": model.spec.rollout.progress_deadline_seconds,
            "selector": {"matchLabels": selector(model)},
            "strategy": strategy_of(model.spec.rollout, in_place=in_place),
            "template": template,
        },
    )


def strategy_of(rollout: Rollout, *, in_place: bool) -> dict[str, Any]:
    """How Kubernetes replaces the engines."""
    if rollout.strategy == "Recreate":
        return {"type": "Recreate"}
    surge, unavailable = rollout.max_surge, rollout.max_unavailable
    if in_place:
        surge, unavailable = IN_PLACE
    numbers = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": numbers}


def selector(model: ServedModel) -> dict[str, str]:
    """Labels that only this model's engines have."""
    return {
        names.LABEL_MODEL: model.name,
        names.LABEL_COMPONENT: names.COMPONENT_ENGINE,
    }


def model_owner(model: ServedModel) -> dict[str, Any]:
    return owner(names.API_VERSION, names.KIND, model.name, model.uid, controller=True)


def hash_of(model: ServedModel) -> str:
    """Hash of the part of the spec that affects an engine's pod.

    Default values are omitted, so a field that a later version adds does not change the hash.
    """
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    seen = {key: spec.get(key) for key in ("model", "engine", "resources")}
    if "podTemplate" in spec:
        seen["podTemplate"] = spec["podTemplate"]
    return digest([model.name, seen, {"drain": model.spec.rollout.drain_seconds}])


def _recorded(observed: Object | None, template_hash: str) -> dict[str, Any] | None:
    """The template as last written, if the spec's hash has not changed since; else None."""
    metadata = observed["metadata"] if observed is not None else {}
    if metadata.get("labels", {}).get(names.LABEL_TEMPLATE_HASH) != template_hash:
        return None
    try:
        template = json.loads(metadata.get("annotations", {}).get(ANNOTATION_TEMPLATE, ""))
    except ValueError:  # the annotation was edited by hand; make the template from the spec
        return None
    return template if isinstance(template, dict) else None


def _template(model: ServedModel, config: OperatorConfig, template_hash: str) -> dict[str, Any]:
    resources = model.spec.resources
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": (
            SETTLE_S + model.spec.rollout.drain_seconds + EXIT_MARGIN_S
        ),
        "readinessGates": [{"conditionType": names.CONDITION_ROUTED}],
        "containers": [_container(model, config)],
        "volumes": _volumes(model),
        **image_pull_secrets(config),
    }
    if nodes := _node_labels(model):
        spec["nodeSelector"] = nodes
    if resources.tolerations:
        spec["tolerations"] = [
            toleration.model_dump(mode="json", by_alias=True, exclude_none=True)
            for toleration in resources.tolerations
        ]
    if resources.priority_class_name:
        spec["priorityClassName"] = resources.priority_class_name
    if resources.runtime_class_name:
        spec["runtimeClassName"] = resources.runtime_class_name
    pod_labels = labels(names.COMPONENT_ENGINE, model.name)
    pod_labels |= {names.LABEL_TEMPLATE_HASH: template_hash}
    template = {"metadata": {"labels": pod_labels}, "spec": spec}
    return overlaid(template, model.spec.pod_template, selector(model))


def _node_labels(model: ServedModel) -> dict[str, str]:
    """Labels that a node must have."""
    resources = model.spec.resources
    gpu = {GPU_PRODUCT: resources.gpu.type} if resources.gpu.type else {}
    return {**resources.node_selector, **gpu}


def _container(model: ServedModel, config: OperatorConfig) -> dict[str, Any]:
    engine, rollout = model.spec.engine, model.spec.rollout
    attempts = -(-rollout.progress_deadline_seconds // STARTUP_PERIOD_S)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": engine.image or config.engine_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["yaie", "serve"],
        "args": arguments(model),
        "env": _environment(model),
        "ports": [
            {
                "name": names.HTTP_PORT_NAME,
                "containerPort": names.HTTP_PORT,
                "protocol": "TCP",
            }
        ],
        "startupProbe": http_probe(names.PATH_READY, period_s=STARTUP_PERIOD_S, failures=attempts),
        "readinessProbe": http_probe(names.PATH_READY, period_s=2, failures=2),
        "livenessProbe": http_probe(names.PATH_LIVE, period_s=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": SETTLE_S}}},
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": _mounts(model),
    }
    if limits := _resources(model):
        container["resources"] = limits
    return container


def arguments(model: ServedModel) -> list[str]:
    """Arguments of `yaie serve`, without values that equal the engine's defaults."""
    spec = model.spec
    engine, cache = spec.engine, spec.engine.kv_cache
    fixed = [
        *(_source(model), "--host", "0.0.0.0"),  # noqa: S104 - a pod listens for its Service
        *(
            "--port",
            str(names.HTTP_PORT),
            "--device",
            "cuda" if spec.resources.gpu.count else "cpu",
        ),
        *("--served-model-name", *model.served_names),
        *("--shutdown-timeout", str(spec.rollout.drain_seconds)),
    ]
    chosen = {
        "revision": spec.model.revision,
        "max_model_len": engine.max_model_len,
        "dtype": engine.dtype,
        "max_num_seqs": engine.max_num_seqs,
        "gpu_memory_utilization": cache.memory_fraction,
        "page_size": cache.page_size,
    }
    known = settings()
    flags = [
        text
        for name, value in chosen.items()
        if value != known[name].default
        for text in (known[name].flag, str(value))
    ]
    return [*fixed, *flags, *engine.args]


def _source(model: ServedModel) -> str:
    source = model.spec.model.source
    if not source.startswith("pvc://"):
        return source
    _, _, path = source.removeprefix("pvc://").partition("/")
    return f"$({names.ENV_MODEL_FOLDER})/{path}".rstrip("/")


def _claim(model: ServedModel) -> str | None:
    source = model.spec.model.source
    return source.removeprefix("pvc://").split("/")[0] if source.startswith("pvc://") else None


def _environment(model: ServedModel) -> list[dict[str, Any]]:
    """The operator's variables, then the user's.

    The user's variables may replace the cache folders and HF_TOKEN, but not the YAIE_* variables.
    """
    users = {variable.name: variable for variable in model.spec.engine.env}
    env: list[dict[str, Any]] = [
        {"name": names.ENV_POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": names.ENV_NAMESPACE, "value": model.namespace},
        {"name": names.ENV_TERMINATION_LOG, "value": TERMINATION_LOG},
    ]
    if _claim(model):
        env.append({"name": names.ENV_MODEL_FOLDER, "value": PVC_MOUNT})
    env += [{"name": n, "value": v} for n, v in ENVIRONMENT.items() if n not in users]
    if (secret := model.spec.model.secret_ref) and "HF_TOKEN" not in users:
        env.append(_from_secret("HF_TOKEN", secret.name, secret.key))
    for variable in users.values():
        if variable.value_from is not None:
            ref = variable.value_from.secret_key_ref
            env.append(_from_secret(variable.name, ref.name, ref.key))
        else:
            env.append({"name": variable.name, "value": variable.value or ""})
    return env


def _from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _resources(model: ServedModel) -> dict[str, Any]:
    """Requests and limits. Memory is limited to its request; a CPU limit would only throttle."""
    resources = model.spec.resources
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if resources.cpu:
        requests["cpu"] = resources.cpu
    if resources.memory:
        requests["memory"] = limits["memory"] = resources.memory
    if resources.gpu.count:
        requests[GPU_RESOURCE] = limits[GPU_RESOURCE] = str(resources.gpu.count)
    return {k: v for k, v in (("requests", requests), ("limits", limits)) if v}


def _volumes(model: ServedModel) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "cache", "emptyDir": {}},
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
    if claim := _claim(model):
        source = {"claimName": claim, "readOnly": True}
        volumes.append({"name": "model", "persistentVolumeClaim": source})
    return volumes


def _mounts(model: ServedModel) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": name, "mountPath": path} for name, path in SCRATCH.items()
    ]
    if _claim(model):
        mounts.append({"name": "model", "mountPath": PVC_MOUNT, "readOnly": True})
    return mounts
