"""Makes the EndpointSlice of a Service, with the readiness of its pods. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from yaie_api import names
from yaie_local import kinds
from yaie_local.objects import (
    is_terminating,
    is_true,
    labels_of,
    matches,
    name_of,
    owner_reference,
    uid_of,
)
from yaie_operator.cluster import Object


def slice_of(service: Object, pods: Iterable[Object]) -> Object | None:
    """The EndpointSlice that a Service should have; None if the Service has no selector."""
    spec = service["spec"]
    if not spec.get("selector"):
        return None
    chosen = sorted(
        (p for p in pods if matches(p, spec["selector"]) and _address(p) is not None), key=name_of
    )
    return {
        "apiVersion": kinds.ENDPOINT_SLICES.kind.api_version,
        "kind": kinds.ENDPOINT_SLICES.kind.kind,
        "metadata": {
            "name": f"{name_of(service)}-local",
            "namespace": service["metadata"]["namespace"],
            "labels": {
                **labels_of(service),
                names.LABEL_SERVICE_NAME: name_of(service),
                "endpointslice.kubernetes.io/managed-by": "yaie-up",
            },
            "ownerReferences": [owner_reference(service)],
        },
        "addressType": "IPv4",
        "ports": [_port(port, chosen) for port in spec.get("ports") or ()],
        "endpoints": [_endpoint(pod, service) for pod in chosen],
    }


def _endpoint(pod: Object, service: Object) -> dict[str, Any]:
    ending = is_terminating(pod)
    serving = is_true(pod, "Ready")
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    return {
        "addresses": [_address(pod)],
        "conditions": {
            "ready": published or (serving and not ending),
            "serving": serving,
            "terminating": ending,
        },
        "targetRef": {
            "kind": "Pod",
            "namespace": pod["metadata"]["namespace"],
            "name": name_of(pod),
            "uid": uid_of(pod),
        },
        "nodeName": "localhost",
    }


def _port(port: Mapping[str, Any], pods: Iterable[Object]) -> dict[str, Any]:
    target = port.get("targetPort", port["port"])
    number = _named_port(target, pods) if isinstance(target, str) else target
    return {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}


def _named_port(name: str, pods: Iterable[Object]) -> int | None:
    """The number of a named container port; None if no pod declares it."""
    declared = (
        port["containerPort"]
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("name") == name
    )
    return next(declared, None)


def _address(pod: Object) -> str | None:
    return (pod.get("status") or {}).get("podIP")
