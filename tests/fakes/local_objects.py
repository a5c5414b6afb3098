"""Factories of objects for the tests of the local adapter."""

from pathlib import Path
from typing import Any

from yaie_api import names
from yaie_api.resource import crd
from yaie_local.apiserver.admission import Admission
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.apiserver.journal import Journal
from yaie_local.apiserver.store import Store

SERVER = Path(__file__).with_name("child_server.py")


def obj(kind: str = "ConfigMap", name: str = "a", **rest: Any) -> dict[str, Any]:
    """Any object; `metadata` keys are merged with the name and namespace."""
    meta = {"name": name, "namespace": "default", **rest.pop("metadata", {})}
    return {"apiVersion": rest.pop("apiVersion", "v1"), "kind": kind, "metadata": meta, **rest}


def owner(parent: Any) -> dict[str, Any]:
    return {
        "apiVersion": parent["apiVersion"],
        "kind": parent["kind"],
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
    }


def model(name: str = "demo", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"source": "builtin://yaie-demo"}, **spec},
    }


def deployment(name: str = "web", *, flags: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    """A Deployment of the child server. `flags` are the child's own."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["python", str(SERVER)],
        "args": ["--host", "0.0.0.0", "--port", "8000", *flags],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
        **spec.pop("container", {}),
    }
    pod = {"containers": [container], "terminationGracePeriodSeconds": 5, **spec.pop("pod", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            **spec,
        },
    }


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 8000, "targetPort": "http"}]
    return obj("Service", name, spec={"selector": {"app": name}, "ports": ports, **spec})


def pod(name: str = "p", *, ready: bool = True, ip: str | None = "127.1.0.1", **rest: Any) -> Any:
    """A stored pod as the kubelet leaves it."""
    status: dict[str, Any] = {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": STAMP},
            {"type": "Ready", "status": str(ready), "lastTransitionTime": STAMP},
        ]
    }
    if ip is not None:
        status["podIP"] = ip
    meta = {"uid": f"uid-{name}", "creationTimestamp": STAMP, **rest.pop("metadata", {})}
    container = {"name": "main", "ports": [{"name": "http", "containerPort": 8000}]}
    spec = {"containers": [{**container, **rest.pop("container", {})}], **rest.pop("pod", {})}
    return obj("Pod", name, metadata=meta, spec=spec, status=status, **rest)


STAMP = "2026-01-01T00:00:00Z"


def verbs(folder: Path) -> Verbs:
    """Verbs on a fresh store in a folder."""
    store = Store(Journal(folder / "objects.jsonl"))
    return Verbs(store, Admission(crd.render(local=True)))
