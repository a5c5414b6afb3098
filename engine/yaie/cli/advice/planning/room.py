"""Asks a cluster, or the machine of a `yaie up`, for what `nodes` decides from."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from yaie.cli.advice.place import ForbiddenError, Place
from yaie.cli.advice.planning import nodes
from yaie.cli.advice.planning.nodes import GPU, GPU_MEMORY, GPU_PRODUCT, Seat
from yaie.cli.advice.planning.subject import Wish
from yaie_api import names
from yaie_api.errors import NotFoundError

HERE: Final = "this machine"
LIVING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods that hold a place on a node."""


@dataclass(frozen=True)
class Room:
    """What a place has for a model.

    Attributes:
        where: its name, for people.
        seats: one for each node.
        running: engines of the model that run there now; None: it is not known.
        unknown: what could not be asked; "": nothing.

    """

    where: str
    seats: Sequence[Seat]
    running: int | None = None
    unknown: str = ""


async def look(place: Place, wish: Wish, namespace: str) -> Room:
    """What there is for a pod of the model.

    Raises:
        UnavailableError: the place does not answer.

    """
    name, pod = wish.name, wish.pod
    if place.is_local:
        return await _machine(place, wish, namespace)
    try:
        found = (await place.get("/api/v1/nodes"))["items"]
    except ForbiddenError:
        return Room(place.name, (), unknown="this account may not list nodes")
    pods, unknown = None, ""
    try:
        pods = (await place.get("/api/v1/pods", {"fieldSelector": LIVING}))["items"]
    except ForbiddenError:
        unknown = "this account may not list the pods of all namespaces: what is in use is unknown"
    seats = nodes.seats(found, pods, pod)
    return Room(place.name, seats, await _running(place, name, namespace), unknown)


async def _machine(place: Place, wish: Wish, namespace: str) -> Room:
    """The machine of a `yaie up` as a node: its GPUs are all that it hands out."""
    from yaie.cli.advice.gpus import installed
    from yaie_local.kubelet import gpus

    ids, cards = gpus.detect(os.environ), installed()
    labels = {}
    if cards:
        labels = {GPU_PRODUCT: cards[0].name, GPU_MEMORY: str(cards[0].memory_bytes // 2**20)}
    node = {
        "metadata": {"name": HERE, "labels": labels},
        "status": {"allocatable": {GPU: str(len(ids))}},
    }
    running = (await place.get("/api/v1/pods"))["items"]
    here = [{**one, "spec": {**one["spec"], "nodeName": HERE}} for one in running]
    asked = [{"resources": {"limits": _gpus_of(one)}} for one in wish.pod["containers"]]
    seats = nodes.seats([node], here, {"containers": [] if wish.is_open and not ids else asked})
    return Room(place.name, seats, await _running(place, wish.name, namespace))


def _gpus_of(container: Mapping[str, Any]) -> dict[str, str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return {GPU: limits[GPU]} if GPU in limits else {}


async def _running(place: Place, name: str, namespace: str) -> int | None:
    """How many engines of the model have a node."""
    selector = f"{names.LABEL_MODEL}={name},{names.LABEL_COMPONENT}={names.COMPONENT_ENGINE}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        found = (await place.get(path, {"labelSelector": selector}))["items"]
    except (ForbiddenError, NotFoundError):
        return None
    living = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
    return sum(1 for pod in living if place.is_local or pod["spec"].get("nodeName"))
