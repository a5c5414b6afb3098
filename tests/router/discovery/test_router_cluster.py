"""The router's list and watch against a real API server, with a service account's rights alone."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from router.fakes import FakeEngine, endpoint_slice, inference_model
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.watch import Access, Watcher
from yaie_router.run import models_path, slices_path

pytestmark = pytest.mark.cluster

CRD = Path(__file__).parents[3] / "manifests" / "crd.yaml"
RULES = [
    {"apiGroups": ["yaie.dev"], "resources": ["inferencemodels"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    },
]


def grant(control_plane: ControlPlane, namespace: str, folder: Path) -> Access:
    """A service account that may list and watch, and access with its token."""
    about = {"name": "router", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    control_plane.kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": about, "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "router"},
            "subjects": [{"kind": "ServiceAccount", **about}],
        },
    )
    kubectl = control_plane.kubectl
    (folder / "token").write_text(kubectl("create", "token", "router", "-n", namespace))
    view = json.loads(kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    cluster = view["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"])
    (folder / "ca.crt").write_bytes(authority)
    return Access(control_plane.server, ca_file=folder / "ca.crt", token_file=folder / "token")


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not check():  # noqa: ASYNC110 - another task fills the directory
            await asyncio.sleep(0.02)


async def test_a_directory_follows_a_real_api_server(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubectl = control_plane.kubectl
    kubectl("apply", "--server-side", "-f", CRD)
    kubectl("wait", "--for=condition=Established", "crd/inferencemodels.yaie.dev")
    namespace = control_plane.new_namespace("router")
    engine = FakeEngine("pod-a")
    engine.port = 8000
    model, entries = inference_model("demo"), endpoint_slice("demo", engine)
    entries["endpoints"][0]["addresses"] = ["10.1.2.3"]  # loopback addresses are refused
    entries["endpoints"][0]["targetRef"]["namespace"] = namespace
    for item in (model, entries):
        item["metadata"]["namespace"] = namespace
        item["metadata"].pop("creationTimestamp", None)
    kubectl.apply(model)
    access = grant(control_plane, namespace, tmp_path)
    directory = Directory()
    async with access.session() as session:
        label = "app.kubernetes.io/managed-by=yaie-operator"
        watchers = [
            Watcher(session, access, models_path(namespace), directory.models),
            Watcher(session, access, slices_path(namespace), directory.slices, selector=label),
        ]
        tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
        try:
            await until(lambda: directory.is_listed and directory.find("demo") is not None)
            found = directory.find("demo")
            assert found is not None
            assert found.created_s > 1_600_000_000
            assert found.policy == "PrefixAffinity"
            await asyncio.to_thread(kubectl.apply, entries)
            await until(lambda: bool(directory.all()[0].endpoints))
            assert directory.all()[0].endpoints[0].base_url == "http://10.1.2.3:8000"
            await asyncio.to_thread(kubectl, "delete", "ym/demo", "-n", namespace)
            await until(lambda: directory.find("demo") is None)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
