"""The Deployment of one model's engines.

The pod template is a function of the spec and the operator's default image. It is recorded in an
annotation of the Deployment and reused until the relevant part of the spec changes, so a new
operator version or a new default image does not restart engines.
"""

import json
from typing import Any, Final

from yaie_api import names
from yaie_api.engine_config import settings
from yaie_api.resource.model import Rollout
from yaie_api.tracing import settings as tracing
from yaie_operator.cluster import Object, label
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources import mounts
from yaie_operator.resources.mounts import Stored
from yaie_operator.resources.overlay import check_size, overlaid, recorded
from yaie_operator.resources.pod import (
    ENVIRONMENT,
    TERMINATION_LOG,
    credentials,
    model_owner,
    placement,
    prefix_key,
    users_names,
    users_variables,
)
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
)

ANNOTATION_TEMPLATE: Final = f"{names.GROUP}/template"
CONTAINER: Final = "engine"
IN_PLACE: Final = (0, 1)
"""maxSurge and maxUnavailable: an engine leaves its place to its successor, one by one."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
STARTUP_PERIOD_S: Final = 2

SCRATCH: Final = {"tmp": "/tmp", "cache": "/cache", "dshm": "/dev/shm"}  # noqa: S108 - pod mounts


def deployment(
    model: ServedModel,
    config: OperatorConfig,
    *,
    observed: Object | None,
    in_place: bool = False,
    stored: Stored | None = None,
    held: bool = False,
) -> Object:
    """The engines' Deployment.

    Args:
        model: the model.
        config: the operator's settings.
        observed: the existing one if it is ours, else None.
        in_place: there is no room for additional engines (`reconcile.rollout.strategy`).
        stored: where the weights are in the cache, if there is one.
        held: keep the pods as they are: the weights of the current spec are not stored yet.

    Raises:
        TemplateTooLargeError: the pod template cannot be recorded.

    """
    template_hash = hash_of(model, stored)
    if held and observed is not None:
        template_hash = label(observed, names.LABEL_TEMPLATE_HASH)
    template = _recorded(observed, template_hash)
    if template is None and held and observed is not None:
        template = observed["spec"]["template"]
    elif template is None:
        template = _template(model, config, template_hash, stored)
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


def hash_of(model: ServedModel, stored: Stored | None = None) -> str:
    """Hash of the part of the spec that affects an engine's pod, and of the stored weights.

    Default values are omitted, so a field that a later version adds does not change the hash.
    """
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    seen = {key: spec.get(key) for key in ("model", "engine", "resources")}
    if "podTemplate" in spec:
        seen["podTemplate"] = spec["podTemplate"]
    kept = [] if stored is None else [mounts.claim_name(model), stored.folder, _spread(model)]
    return digest([model.name, seen, {"drain": model.spec.rollout.drain_seconds}, *kept])


def _recorded(observed: Object | None, template_hash: str) -> dict[str, Any] | None:
    """The template as last written, if the spec's hash has not changed since; else None."""
    if observed is None or label(observed, names.LABEL_TEMPLATE_HASH) != template_hash:
        return None
    try:
        written = observed["metadata"].get("annotations", {})
        template = json.loads(written.get(ANNOTATION_TEMPLATE, ""))
    except ValueError:  # the annotation was edited by hand; make the template from the spec
        return None
    return template if isinstance(template, dict) else None


def _template(
    model: ServedModel, config: OperatorConfig, template_hash: str, stored: Stored | None
) -> dict[str, Any]:
    resources = model.spec.resources
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": (
            SETTLE_S + model.spec.rollout.drain_seconds + EXIT_MARGIN_S
        ),
        "readinessGates": [{"conditionType": names.CONDITION_ROUTED}],
        "containers": [_container(model, config, stored)],
        "volumes": _volumes(model, stored),
        **placement(model),
        **image_pull_secrets(config),
    }
    if resources.runtime_class_name:
        spec["runtimeClassName"] = resources.runtime_class_name
    if stored is not None and not _spread(model):
        spec["affinity"] = {"podAffinity": _together(model)}
    pod_labels = labels(names.COMPONENT_ENGINE, model.name)
    pod_labels |= {names.LABEL_TEMPLATE_HASH: template_hash}
    template = {"metadata": {"labels": pod_labels}, "spec": spec}
    return overlaid(template, model.spec.pod_template, selector(model))


def _spread(model: ServedModel) -> bool:
    """Whether engines with a cache may run on several nodes: not with a claim of one node."""
    cache = model.spec.cache
    return cache.claim is not None or cache.access_mode == "ReadWriteMany"


def _together(model: ServedModel) -> dict[str, Any]:
    """All engines of a model on one node. The scheduler says so then; it does not know that a
    second node cannot mount the claim, and a pod there would wait for ever without a reason.
    """
    term = {
        "labelSelector": {"matchLabels": selector(model)},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _container(model: ServedModel, config: OperatorConfig, stored: Stored | None) -> dict[str, Any]:
    engine, rollout = model.spec.engine, model.spec.rollout
    attempts = -(-rollout.progress_deadline_seconds // STARTUP_PERIOD_S)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": engine.image or config.engine_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["yaie", "serve"],
        "args": arguments(model, stored),
        "env": _environment(model, config, stored),
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
        "volumeMounts": _mounts(model, stored),
    }
    if limits := _resources(model):
        container["resources"] = limits
    return container


def arguments(model: ServedModel, stored: Stored | None = None) -> list[str]:
    """Arguments of `yaie serve`, without values that equal the engine's defaults."""
    spec = model.spec
    engine, cache = spec.engine, spec.engine.kv_cache
    fixed = [
        *(mounts.source(model, stored), "--host", "0.0.0.0"),  # noqa: S104 - a pod listens for its Service
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
        "revision": spec.model.revision if stored is None else None,
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


def _environment(
    model: ServedModel, config: OperatorConfig, stored: Stored | None
) -> list[dict[str, Any]]:
    """The operator's variables, then the user's.

    The user's variables may replace the cache folders, HF_TOKEN and what is said of traces, but not
    the YAIE_* variables.
    """
    traces = tracing.variables(config.tracing_endpoint, config.tracing_sampling_ratio)
    defaults = {**ENVIRONMENT, **traces}
    env: list[dict[str, Any]] = [
        {"name": names.ENV_POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": names.ENV_NAMESPACE, "value": model.namespace},
        {"name": names.ENV_TERMINATION_LOG, "value": TERMINATION_LOG},
        prefix_key(),
    ]
    if mounts.volume(model, stored) is not None:
        env.append({"name": names.ENV_MODEL_FOLDER, "value": mounts.MOUNT})
    if stored is not None:
        defaults["HF_HUB_OFFLINE"] = "1"
    users = users_names(model)
    env += [{"name": n, "value": v} for n, v in defaults.items() if n not in users]
    # An engine whose weights are stored needs no token.
    env += [] if stored is not None else credentials(model)
    return [*env, *users_variables(model)]


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


def _volumes(model: ServedModel, stored: Stored | None) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "cache", "emptyDir": {}},
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
    weights = mounts.volume(model, stored)
    return [*volumes, weights] if weights is not None else volumes


def _mounts(model: ServedModel, stored: Stored | None) -> list[dict[str, Any]]:
    mounted: list[dict[str, Any]] = [
        {"name": name, "mountPath": path} for name, path in SCRATCH.items()
    ]
    if mounts.volume(model, stored) is not None:
        mounted.append({"name": mounts.VOLUME, "mountPath": mounts.MOUNT, "readOnly": True})
    return mounted
