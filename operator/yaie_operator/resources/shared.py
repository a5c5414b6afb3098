"""Parts common to engines' and routers' manifests: labels, owner references, the restricted
security context, probes, and the hash annotation.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig

ANNOTATION_APPLIED: Final = f"{names.GROUP}/applied"
"""Hash of the whole manifest as last applied. It also changes when the operator stops setting a
field, which a comparison with the live object cannot detect."""

NOBODY: Final = 65532
"""User id and group id of every container, and of the images."""

CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
    "fsGroup": NOBODY,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Pod Security Standards: restricted."""

SETTLE_S: Final = 5
"""Seconds between a pod's removal from its Services and its SIGTERM, so that routers notice the
removal first."""
EXIT_MARGIN_S: Final = 10
"""Seconds between the end of a drain and SIGKILL."""


def digest(value: Any) -> str:
    """Short stable hash of JSON data, valid as a label value."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def labels(component: str, model: str | None = None) -> dict[str, str]:
    """Labels of an object that the operator creates."""
    common = {
        "app.kubernetes.io/name": "yaie",
        "app.kubernetes.io/component": component,
        names.LABEL_COMPONENT: component,
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
    }
    if model is None:
        return common
    return common | {"app.kubernetes.io/instance": model, names.LABEL_MODEL: model}


def owner(api_version: str, kind: str, name: str, uid: str, *, controller: bool) -> dict[str, Any]:
    """An ownerReference: the garbage collector deletes the dependent object with the owner."""
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return reference | ({"controller": True} if controller else {})


def manifest(
    api_version: str,
    kind: str,
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    owners: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    **body: Any,
) -> Object:
    """A complete manifest, with the hash of its contents as an annotation."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
    }
    if owners:
        metadata["ownerReferences"] = list(owners)
    whole = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
    metadata["annotations"] = {**metadata["annotations"], ANNOTATION_APPLIED: digest(whole)}
    return whole


def image_pull_secrets(config: OperatorConfig) -> dict[str, Any]:
    """The pod spec's field with the registries' Secrets, absent if there are none."""
    named = [{"name": name} for name in config.image_pull_secrets]
    return {"imagePullSecrets": named} if named else {}


def http_probe(
    path: str, *, period_s: int, failures: int, scheme: str | None = None
) -> dict[str, Any]:
    """A probe of the container's HTTP port. `scheme`: None: plain HTTP."""
    return {
        "httpGet": {"path": path, "port": names.HTTP_PORT_NAME}
        | ({"scheme": scheme} if scheme else {}),
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def http_service(
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    owners: Sequence[Mapping[str, Any]] = (),
    service_type: str = "ClusterIP",
    is_https: bool = False,
) -> Object:
    """A Service that publishes the HTTP port of the selected pods. `is_https`: with TLS, which the
    port's name says to Ingresses and meshes.
    """
    port = {"name": names.HTTP_PORT_NAME, "port": names.HTTP_PORT, "protocol": "TCP"}
    if is_https:
        port |= {"name": "https", "appProtocol": "https"}
    return manifest(
        "v1",
        "Service",
        name=name,
        namespace=namespace,
        labels=labels,
        owners=owners,
        spec={
            "type": service_type,
            "selector": dict(selector),
            "ports": [port | {"targetPort": names.HTTP_PORT_NAME}],
        },
    )
