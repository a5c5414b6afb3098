"""What doctor says about what models need on a cluster: rights, GPUs, storage, images, routers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from yaie.cli.advice.checking.report import Check, Finding, fail, ok, skip, warn
from yaie.cli.advice.place import ForbiddenError, Place
from yaie.cli.advice.planning.nodes import GPU, GPU_MEMORY
from yaie.cli.local.client import model_path
from yaie.cli.local.progress import ModelState
from yaie_api import names
from yaie_api.errors import NotFoundError, UnavailableError

Object = Mapping[str, Any]
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
OURS: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


class Right(NamedTuple):
    """A right of a user. `is_needed`: without it models cannot be deployed."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    is_needed: bool = False

    def __str__(self) -> str:
        of = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {of}"


RIGHTS: Final = (
    *(Right(verb, names.GROUP, names.PLURAL, is_needed=True) for verb in ("create", "patch")),
    *(Right(verb, names.GROUP, names.PLURAL) for verb in ("get", "list", "delete")),
    Right("list", "", "pods"),
    Right("get", "", "pods", "log"),
    Right("list", "", "events"),
    Right("list", "", "nodes"),
)
"""What a user does with `kubectl apply`, `yaie explain` and `yaie plan`."""


def checks(place: Place, namespace: str) -> list[Check]:
    found = [Check("models", lambda: _models(place, namespace))]
    if place.is_local:
        return found
    return [
        Check("rights", lambda: _rights(place, namespace)),
        Check("GPU nodes", lambda: _gpu_nodes(place)),
        Check("storage", lambda: _storage(place)),
        Check("images", lambda: _images(place, namespace)),
        Check("router", lambda: _router(place, namespace)),
        *found,
    ]


async def _rights(place: Place, namespace: str) -> Finding:
    answers = await asyncio.gather(*(_may(place, namespace, right) for right in RIGHTS))
    denied = [right for right, may in zip(RIGHTS, answers, strict=True) if not may]
    return judge_rights(denied, namespace)


async def _may(place: Place, namespace: str, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        **({"subresource": right.subresource} if right.subresource else {}),
        **({"namespace": namespace} if right.resource != "nodes" else {}),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool((await place.post(REVIEWS, body))["status"].get("allowed"))


def judge_rights(denied: Sequence[Right], namespace: str) -> Finding:
    """`denied`: what the account may not do."""
    if not denied:
        return ok("rights", f"this account may deploy and look at models in {namespace}")
    told = f"in {namespace} this account may not {', '.join(map(str, denied))}"
    grant = f"kubectl create rolebinding NAME --clusterrole edit --user USER -n {namespace}"
    if any(right.is_needed for right in denied):
        return fail("rights", told, f"an administrator gives the role: {grant}")
    return warn("rights", told, "some commands show less; the role view or edit has most of it")


async def _gpu_nodes(place: Place) -> Finding:
    return judge_gpu_nodes((await place.get("/api/v1/nodes"))["items"])


def judge_gpu_nodes(nodes: Sequence[Object]) -> Finding:
    name = "GPU nodes"
    offered = {n["metadata"]["name"]: int(_allocatable(n).get(GPU, "0")) for n in nodes}
    labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}
    hidden = [
        one for one, of in labels.items()
        if of.get("nvidia.com/gpu.present") == "true" and not offered[one]
    ]  # fmt: skip
    if hidden:
        return fail(
            name,
            f"{', '.join(hidden)} has GPUs and offers none",
            "look at the pods of NVIDIA's device plugin (GPU operator) there",
        )
    total = sum(offered.values())
    if not total:
        return warn(
            name,
            f"none of {len(nodes)} nodes offers {GPU}: models with resources.gpu would wait",
            "install NVIDIA's GPU operator where there are GPUs; without, models run on CPUs",
        )
    with_gpu = [one for one, count in offered.items() if count]
    told = f"{total} GPUs on {len(with_gpu)} of {len(nodes)} nodes"
    if not all(GPU_MEMORY in labels[one] for one in with_gpu):
        todo = "install GPU feature discovery (part of the GPU operator): `yaie plan` reads it"
        return warn(name, f"{told}, without labels of their type and memory", todo)
    return ok(name, told)


def _allocatable(node: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = node.get("status", {}).get("allocatable") or {}
    return found


async def _storage(place: Place) -> Finding:
    return judge_storage((await place.get(CLASSES))["items"])


def judge_storage(classes: Sequence[Object]) -> Finding:
    annotated = {c["metadata"]["name"]: c["metadata"].get("annotations") or {} for c in classes}
    default = [name for name, of in annotated.items() if of.get(DEFAULT_CLASS) == "true"]
    if default:
        return ok("storage", f"default StorageClass {default[0]}")
    known = f"there are {', '.join(annotated)}" if annotated else "there is none at all"
    return warn(
        "storage",
        f"no default StorageClass ({known}): claims that name none stay Pending",
        f"kubectl annotate storageclass NAME {DEFAULT_CLASS}=true",
    )


async def _images(place: Place, namespace: str) -> Finding:
    query = {"labelSelector": OURS}
    try:
        found = await place.get("/api/v1/pods", query)
    except ForbiddenError:
        found = await place.get(f"/api/v1/namespaces/{namespace}/pods", query)
    return judge_images(found["items"])


def judge_images(pods: Iterable[Object]) -> Finding:
    """Whether the pods of models and routers get their images."""
    stuck: dict[str, str] = {}
    for pod in pods:
        status = pod.get("status", {})
        statuses = (status.get("initContainerStatuses"), status.get("containerStatuses"))
        for one in (one for several in statuses for one in several or ()):
            if one.get("state", {}).get("waiting", {}).get("reason") in PULL:
                where = f"{pod['metadata']['name']} -n {pod['metadata']['namespace']}"
                stuck.setdefault(one.get("image", "?"), where)
    if not stuck:
        return ok("images", "no pod waits for its image")
    first = next(iter(stuck.values()))
    todo = f"kubectl describe pod {first}; see images/README.md for how images get to nodes"
    return fail("images", f"cannot be pulled: {', '.join(stuck)}", todo)


async def _router(place: Place, namespace: str) -> Finding:
    base = f"/api/v1/namespaces/{namespace}/services/{names.ROUTER}"
    try:
        await place.get(base)
    except NotFoundError:
        return skip("router", f"none in {namespace}: it comes with the first model")
    through = f"{base}:{names.HTTP_PORT}/proxy{names.PATH_LIVE}"
    try:
        await place.text(through)
    except ForbiddenError:
        return await _router_by_endpoints(place, namespace)
    except (NotFoundError, UnavailableError) as error:
        look = f"kubectl describe pods -n {namespace} -l {names.LABEL_COMPONENT}=router"
        return fail("router", f"it does not answer in {namespace}: {error.message}", look)
    return ok("router", f"it answers in {namespace}, asked through the API server")


async def _router_by_endpoints(place: Place, namespace: str) -> Finding:
    """Whether a router is ready, for accounts that may not send requests to it."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    query = {"labelSelector": f"{names.LABEL_SERVICE_NAME}={names.ROUTER}"}
    slices = (await place.get(path, query))["items"]
    ready = sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for one in slices
        for endpoint in one.get("endpoints") or ()
    )
    if ready:
        return ok("router", f"{ready} ready in {namespace} (this account may not ask them)")
    look = f"kubectl describe pods -n {namespace} -l {names.LABEL_COMPONENT}=router"
    return fail("router", f"none is ready in {namespace}", look)


async def _models(place: Place, namespace: str) -> Finding:
    try:
        items = (await place.get(model_path(namespace)))["items"]
    except NotFoundError:
        return skip("models", "the type is not installed")
    return judge_models(items, namespace, place.flags)


def judge_models(models: Sequence[Object], namespace: str, flags: str) -> Finding:
    if not models:
        return ok("models", f"none in {namespace}")
    states = [ModelState.of(model) for model in models]
    waiting = [state.name for state in states if not state.settled]
    if not waiting:
        return ok("models", f"{len(models)} in {namespace}, all as they should be")
    space = f" -n {namespace}" if namespace != "default" else ""
    told = f"{len(waiting)} of {len(models)} in {namespace} not ready: {', '.join(waiting)}"
    return warn("models", told, f"yaie explain {waiting[0]}{space}{flags}")
