"""Reads what `explained` explains: a model, its pods and Events, and what its engines said last."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from yaie.cli.advice.explaining.explained import Seen
from yaie.cli.advice.place import ForbiddenError, Place
from yaie.cli.advice.threads import in_thread
from yaie.cli.local.client import model_path
from yaie.cli.local.stages import last_words, stages
from yaie_api import names
from yaie_api.errors import NotFoundError, UnavailableError
from yaie_operator.reconcile.pods import is_ready

Object = Mapping[str, Any]
_LOG_LINES: Final = 20
_MOST_LOGS: Final = 4
"""Pods whose Events and logs are read: those of one model mostly say the same."""


async def observe(place: Place, namespace: str, name: str) -> Seen:
    """What there is about a model.

    Raises:
        NotFoundError: there is no such model; the message names those that are there.
        ForbiddenError: the account may not read models.
        UnavailableError: the place does not answer.

    """
    try:
        model = await place.get(model_path(namespace, name))
    except NotFoundError as error:
        raise await _absent(place, namespace, name) from error
    unseen: list[str] = []
    pods = await _pods(place, namespace, name, unseen)
    waiting = [pod for pod in pods if not is_ready(pod)][:_MOST_LOGS]
    events, said = await asyncio.gather(
        _events(place, namespace, name, waiting, unseen), _said(place, namespace, waiting)
    )
    return Seen(model, pods, events, said, tuple(dict.fromkeys(unseen)))


async def _absent(place: Place, namespace: str, name: str) -> NotFoundError:
    """The error for a model that does not exist."""
    try:
        items = (await place.get(model_path(namespace)))["items"]
    except NotFoundError:
        return NotFoundError(
            f"{place.name} does not know InferenceModels: its CRD is not installed. Look with: "
            f"yaie doctor{place.flags}"
        )
    known = ", ".join(model["metadata"]["name"] for model in items) or "none"
    return NotFoundError(f"no model named {name} in namespace {namespace} (models there: {known})")


async def _pods(place: Place, namespace: str, name: str, unseen: list[str]) -> list[Object]:
    selector = f"{names.LABEL_MODEL}={name},{names.LABEL_COMPONENT}={names.COMPONENT_ENGINE}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        found: list[Object] = (await place.get(path, {"labelSelector": selector}))["items"]
    except ForbiddenError:
        unseen.append("this account may not list pods, so engines are not shown")
        return []
    return found


async def _events(
    place: Place, namespace: str, name: str, pods: Sequence[Object], unseen: list[str]
) -> list[Object]:
    """Events of the model, its Deployment and ReplicaSets, and of the pods."""
    shown = {pod["metadata"]["name"] for pod in pods}
    asked = [f"involvedObject.name={one}" for one in (name, *shown)]
    asked.append("involvedObject.kind=ReplicaSet")
    path = f"/api/v1/namespaces/{namespace}/events"
    try:
        answers = await asyncio.gather(*(place.get(path, {"fieldSelector": s}) for s in asked))
    except ForbiddenError:
        unseen.append("this account may not list Events, so they are not shown")
        return []
    found = {e["metadata"]["name"]: e for answer in answers for e in answer["items"]}
    return [event for event in found.values() if is_about(event, name, shown)]


def is_about(event: Object, name: str, pods: Iterable[str]) -> bool:
    """Whether an Event is about the model of this name or a child of it."""
    about = event.get("involvedObject") or {}
    kind, of = about.get("kind"), about.get("name", "")
    if kind == "Pod":
        return of in set(pods)
    if kind == "ReplicaSet":
        return re.fullmatch(rf"{re.escape(name)}-[a-z0-9]+", of) is not None
    return bool(of == name)


async def _said(place: Place, namespace: str, pods: Sequence[Object]) -> dict[str, str]:
    """By the name of a pod that is not ready: what its engine said last."""
    told = await asyncio.gather(*(_said_by(place, namespace, pod) for pod in pods))
    return {pod["metadata"]["name"]: text for pod, text in zip(pods, told, strict=True) if text}


async def _said_by(place: Place, namespace: str, pod: Object) -> str:
    """Why it ended, in which stage of its start it is, or the end of its log; "": none of them."""
    if words := last_words([pod]):
        return words
    if place.is_local and (stage := await in_thread(lambda: stages([pod]))):
        return next(iter(stage.values()))
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log"
    try:
        return last_sentence(await place.log(path, _LOG_LINES))
    except (ForbiddenError, NotFoundError, UnavailableError):
        return ""  # it has no log yet, or this account may not read it


def last_sentence(log: str) -> str:
    """The last line of a log; of our own log its message and what it is about."""
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        entry = json.loads(lines[-1])
    except ValueError:
        return lines[-1].strip()
    if not isinstance(entry, dict) or "message" not in entry:
        return lines[-1].strip()
    more = [str(entry[key]) for key in ("stage", "detail", "reason", "error") if entry.get(key)]
    return ": ".join([str(entry["message"]), *more])
