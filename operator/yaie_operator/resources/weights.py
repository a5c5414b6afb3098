"""The claim and the download Job of a model with `cache.mode: pvc`, and where its engines mount the
weights.

The Job runs `yaie pull` of the engine image. Its pod needs no rights: the operator asks its port
how far it is, and reads the result from its termination message.
"""

import re
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources.mounts import MOUNT, VOLUME, claim_name, object_name
from yaie_operator.resources.overlay import surrounded
from yaie_operator.resources.pod import (
    ENVIRONMENT,
    TERMINATION_LOG,
    credentials,
    model_owner,
    placement,
    users_names,
    users_variables,
)
from yaie_operator.resources.shared import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    digest,
    image_pull_secrets,
    labels,
    manifest,
)

CONTAINER: Final = "download"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
GRACE_S: Final = 5
"""An ended download loses nothing."""
MOST_RETRIES: Final = 2**31 - 1
"""The kubelet starts a failed container again after 10, 20, 40 … seconds and at most every five
minutes. A Job that gave up would not notice that a token was added or the hub is back."""


def key_of(model: ServedModel, claim_uid: str) -> str:
    """What identifies stored weights: `SOURCE.CLAIM`, both as hashes. Other weights, or a claim
    that was made anew, have another key.
    """
    written = model.spec.model
    return f"{digest([written.source, written.revision])}.{digest(claim_uid)}"


def source_of(key: str) -> str:
    """The part of a key that identifies the source."""
    return key.partition(".")[0]


def named_commit(model: ServedModel) -> str:
    """The commit that the spec of an hf:// model names; "" if it names none, or a branch or tag."""
    written = model.spec.model
    named = written.revision or written.source.partition("@")[2]
    is_commit = written.source.startswith("hf://") and _COMMIT.fullmatch(named) is not None
    return named if is_commit else ""


def claim(model: ServedModel) -> Object | None:
    """The claim that the operator makes; None if the user names one."""
    cache = model.spec.cache
    if cache.claim is not None:
        return None
    spec: dict[str, Any] = {
        "accessModes": [cache.access_mode or "ReadWriteOnce"],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.storage_class is not None:
        spec["storageClassName"] = cache.storage_class
    return manifest(
        "v1",
        "PersistentVolumeClaim",
        name=object_name(model.name),
        namespace=model.namespace,
        labels=labels(names.COMPONENT_WEIGHTS, model.name),
        owners=[model_owner(model)],
        spec=spec,
    )


def job(model: ServedModel, config: OperatorConfig, key: str, *, pinned: str = "") -> Object:
    """The download. `pinned`: the revision that was stored before, if the Job is repeated.

    Its label LABEL_TEMPLATE_HASH changes with the pod template, which the API server does not let
    change: a Job with another one must be replaced.
    """
    own = labels(names.COMPONENT_WEIGHTS, model.name)
    template: dict[str, Any] = {
        "metadata": {"labels": own | {names.LABEL_WEIGHTS: key}},
        "spec": surrounded(_pod(model, config, pinned), model.spec.pod_template),
    }
    return manifest(
        "batch/v1",
        "Job",
        name=object_name(model.name),
        namespace=model.namespace,
        labels=own | {names.LABEL_TEMPLATE_HASH: digest(template)},
        owners=[model_owner(model)],
        spec={
            "suspend": model.spec.suspend,
            "backoffLimit": MOST_RETRIES,
            "template": template,
        },
    )


def _pod(model: ServedModel, config: OperatorConfig, pinned: str) -> dict[str, Any]:
    return {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_container(model, config, pinned)],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim_name(model)}},
        ],
        # Where the engines will run: a claim that waits for its first pod is made beside that pod.
        **placement(model),
        **image_pull_secrets(config),
    }


def _container(model: ServedModel, config: OperatorConfig, pinned: str) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": model.spec.engine.image or config.engine_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["yaie", "pull"],
        "args": [
            *(_source(model, pinned), "--into", f"$({names.ENV_MODEL_FOLDER})"),
            *("--host", "0.0.0.0"),  # noqa: S104 - the operator asks how far it is
            *("--port", str(names.HTTP_PORT)),
        ],
        "env": _environment(model),
        "ports": [
            {
                "name": names.HTTP_PORT_NAME,
                "containerPort": names.HTTP_PORT,
                "protocol": "TCP",
            }
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
            {"name": VOLUME, "mountPath": MOUNT},
        ],
    }


def _source(model: ServedModel, pinned: str) -> str:
    source, revision = model.spec.model.source, model.spec.model.revision
    if not source.startswith("hf://"):
        return source
    wanted = pinned or revision
    return f"{source.partition('@')[0]}@{wanted}" if wanted else source


def _environment(model: ServedModel) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [
        {"name": names.ENV_TERMINATION_LOG, "value": TERMINATION_LOG},
        {"name": names.ENV_MODEL_FOLDER, "value": MOUNT},
    ]
    if "HOME" not in users_names(model):
        env.append({"name": "HOME", "value": ENVIRONMENT["HOME"]})
    return [*env, *credentials(model), *users_variables(model)]
