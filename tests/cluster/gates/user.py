"""An operator behind a gate, and what a user does meanwhile, straight on the API server."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from cluster.gates.proxy import GateProxy
from cluster.operator_scene import Scene
from fakes.fake_cluster import inference_model
from yaie_operator.cluster import Kind, NotFoundError
from yaie_operator.config import OperatorConfig
from yaie_operator.watch import kinds
from yaie_operator.watch.kinds import DEPLOYMENT, INFERENCE_MODEL
from yaie_operator.watch.kube import path_of
from yaie_operator.watch.kube_api import KubeApi, Request, load_configuration

MERGE = "application/merge-patch+json"
LOST_S = 20.0
USER_MANAGER = "somebody"
"""The field manager of what a user writes."""
SHARED = tuple(
    (child.kind, child.name) for child in kinds.OF_NAMESPACE if child.wanted(OperatorConfig())
)
"""Kind and name of what a namespace's models share, with the default settings."""


@contextlib.contextmanager
def gate(scene: Scene, kubeconfig: Path, folder: Path) -> Iterator[tuple[GateProxy, Path]]:
    """A gate in front of the API server, and the operator's kubeconfig through it."""
    cluster = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = folder / "ca.pem"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    proxy = GateProxy(cluster["server"], authority, scene.namespace)
    with proxy.running():
        yield proxy, proxy.kubeconfig(kubeconfig, folder / "gated.kubeconfig")


class User:
    """Somebody who creates, edits, scales and deletes models of one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def create(self, name: str, **spec: Any) -> None:
        model = inference_model(name, **spec)
        model["metadata"]["namespace"] = self.namespace
        await self.api.send(Request("POST", self._path(INFERENCE_MODEL), (), model))

    async def edit(self, name: str, **spec: Any) -> None:
        await self._patch(self._path(INFERENCE_MODEL, name), {"spec": spec})

    async def scale(self, name: str, replicas: int) -> None:
        path = f"{self._path(INFERENCE_MODEL, name)}/scale"
        await self._patch(path, {"spec": {"replicas": replicas}})

    async def delete(self, name: str) -> None:
        await self.api.send(Request("DELETE", self._path(INFERENCE_MODEL, name)))

    async def get(self, kind: Kind, name: str) -> dict[str, Any]:
        """The live object; {} if there is none."""
        try:
            found: dict[str, Any] = await self.api.send(Request("GET", self._path(kind, name)))
        except NotFoundError:
            return {}
        return found

    async def shared(self) -> list[dict[str, Any]]:
        """What the namespace's models share; {} for each object that does not exist."""
        return list(await asyncio.gather(*(self.get(kind, name) for kind, name in SHARED)))

    async def engines(self, name: str) -> int | None:
        """Replicas that the model's Deployment asks for; None without a Deployment."""
        deployment = await self.get(DEPLOYMENT, name)
        return int(deployment["spec"]["replicas"]) if deployment else None

    async def _patch(self, path: str, body: dict[str, Any]) -> None:
        await self.api.send(Request("PATCH", path, (), body, MERGE))

    def _path(self, kind: Kind, name: str | None = None) -> str:
        return path_of(kind, namespace=self.namespace, name=name)


@contextlib.asynccontextmanager
async def user_of(scene: Scene) -> AsyncIterator[User]:
    configuration = await load_configuration(str(scene.control_plane.kubeconfig))
    api = KubeApi(configuration, user_agent=USER_MANAGER)
    try:
        yield User(api, scene.namespace)
    finally:
        await api.close()


async def seconds_until(holds: Callable[[], Any], what: str) -> float:
    """Seconds until an async condition holds."""
    began = time.monotonic()
    while not await holds():
        assert time.monotonic() - began < LOST_S, f"lost: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - began
