"""What doctor says about a cluster's version and about yaie's installation on it."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from yaie.cli.advice.checking.report import Check, Finding, fail, ok, warn
from yaie.cli.advice.place import ForbiddenError, Place
from yaie_api import __version__, names
from yaie_api.errors import NotFoundError
from yaie_api.resource import crd

Object = Mapping[str, Any]
OLDEST: Final = (1, 30)
"""Engines use the native sleep action in preStop."""
CRD: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
OPERATOR: Final = "app.kubernetes.io/name=yaie,app.kubernetes.io/component=operator"
INSTALL: Final = (
    "helm install yaie charts/yaie, or kubectl apply --server-side -f manifests/install.yaml"
)
UPGRADE: Final = "install the CRD, the operator and this command from one release"
_RENEWED_S: Final = 2.2
"""A leader renews its Lease each two seconds."""
_SLACK_S: Final = 15.0
"""How far this machine's clock may be from the leader's."""
_MOST_SHOWN: Final = 3


def first(place: Place) -> Check:
    """What has to answer before anything else is asked."""
    return Check("API server", lambda: _version(place))


def checks(place: Place) -> list[Check]:
    return [
        Check("CRD", lambda: _crd(place)),
        Check("operator", lambda: _operator(place)),
        Check("leader", lambda: _leader(place)),
    ]


async def _version(place: Place) -> Finding:
    return judge_version(await place.get("/version"))


def judge_version(told: Object) -> Finding:
    found = re.match(r"v(\d+)\.(\d+)", told.get("gitVersion", ""))
    if found is None:
        return warn("API server", f"unknown version {told.get('gitVersion')}", "look by yourself")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST:
        return fail("API server", f"Kubernetes {told['gitVersion']}", "upgrade to 1.30 or newer")
    return ok("API server", f"Kubernetes {told['gitVersion']}")


async def _crd(place: Place) -> Finding:
    try:
        return judge_crd(await place.get(CRD))
    except NotFoundError:
        return fail("CRD", f"{names.PLURAL}.{names.GROUP} is not installed", INSTALL)
    except ForbiddenError:
        return await _crd_by_use(place)


async def _crd_by_use(place: Place) -> Finding:
    """Whether the API server knows the type, for accounts that may not read CRDs."""
    try:
        await place.get(f"/apis/{names.API_VERSION}")
    except NotFoundError:
        return fail("CRD", f"{names.API_VERSION} is not installed", INSTALL)
    return ok("CRD", f"{names.API_VERSION} is served (this account may not read its schema)")


def judge_crd(stored: Object) -> Finding:
    """Compare the stored type with ours."""
    conditions = stored.get("status", {}).get("conditions") or ()
    if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return fail(
            "CRD", "it is not established", f"kubectl describe crd {names.PLURAL}.{names.GROUP}"
        )
    versions = {one["name"]: one for one in stored["spec"]["versions"]}
    if names.VERSION not in versions:
        return fail("CRD", f"it has no version {names.VERSION}", UPGRADE)
    ours = crd.render()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    theirs = versions[names.VERSION]["schema"]["openAPIV3Schema"]
    found = list(differences(ours["properties"], theirs.get("properties", {})))
    if found:
        shown = "; ".join(found[:_MOST_SHOWN])
        more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        return warn("CRD", f"it is not that of yaie {__version__}: {shown}{more}", UPGRADE)
    return ok("CRD", f"{names.API_VERSION}, the schema of yaie {__version__}")


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two schemas allow different objects; texts for people do not count."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        is_table = path.endswith("properties") or not path
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if key == "description" and not is_table:
                continue
            place = f"{path}.{key}" if path else key
            if key not in theirs:
                yield f"{_field(place)} is missing there"
            elif key not in ours:
                yield f"{_field(place)} is unknown here"
            else:
                yield from differences(ours[key], theirs[key], place)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif ours != theirs:
        yield f"{_field(path)} differs"


def _field(path: str) -> str:
    """A place of a schema as a path in an object: `spec.engine.dtype`, `spec.model (a rule)`."""
    rule = ".x-kubernetes-validations" in path
    plain = path.partition(".x-kubernetes-validations")[0]
    named = re.sub(r"\.properties\b", "", plain).replace(".items", "[]")
    return f"{named} (a rule)" if rule else named


async def _operator(place: Place) -> Finding:
    try:
        found = await place.get("/apis/apps/v1/deployments", {"labelSelector": OPERATOR})
    except ForbiddenError:
        told = "this account may not list Deployments, so the operator was not looked at"
        return warn("operator", told, "ask an administrator, or look at the leader below")
    return judge_operator(found["items"])


def judge_operator(deployments: Sequence[Object]) -> Finding:
    if not deployments:
        return fail("operator", "no Deployment of it", INSTALL)
    if len(deployments) > 1:
        places = ", ".join(one["metadata"]["namespace"] for one in deployments)
        return warn("operator", f"several, in {places}", "keep one release of the chart")
    (found,) = deployments
    meta, status = found["metadata"], found.get("status", {})
    ready, wanted = status.get("availableReplicas", 0), found["spec"].get("replicas", 1)
    image = found["spec"]["template"]["spec"]["containers"][0]["image"]
    told = f"{ready} of {wanted} ready in {meta['namespace']}, image {image}"
    look = f"kubectl describe pods -n {meta['namespace']} -l {OPERATOR}"
    if not ready:
        return fail("operator", told, look)
    version = (meta.get("labels") or {}).get("app.kubernetes.io/version", __version__)
    if version != __version__:
        return warn("operator", f"{told}: version {version}, this is {__version__}", UPGRADE)
    return ok("operator", told) if ready >= wanted else warn("operator", told, look)


async def _leader(place: Place) -> Finding:
    first = await _lease(place)
    now = datetime.now(UTC)
    if first is not None and _age_s(first, now) > _life_s(first):
        # Stale, or this machine's clock is ahead: a living leader has renewed it meanwhile.
        await asyncio.sleep(_RENEWED_S)
        again = await _lease(place)
        if again is not None and again["spec"].get("renewTime") != first["spec"].get("renewTime"):
            return ok("leader", f"{_holder(again)}, by whose clock this machine is wrong")
    return judge_lease(first, now)


async def _lease(place: Place) -> Object | None:
    path = "/apis/coordination.k8s.io/v1/leases"
    query = {"fieldSelector": f"metadata.name={names.OPERATOR_LEASE}"}
    items = (await place.get(path, query))["items"]
    return max(items, key=lambda one: str(one["spec"].get("renewTime")), default=None)


def judge_lease(lease: Object | None, now: datetime) -> Finding:
    """Whether an operator leads: only the leader acts."""
    look = f"kubectl logs -A --prefix -l {OPERATOR}"
    if lease is None:
        return fail("leader", "no operator has ever led: there is no Lease", look)
    if not _holder(lease):
        return fail("leader", "the Lease is given up and nobody has taken it", look)
    age_s = _age_s(lease, now)
    if age_s > _life_s(lease):
        told = f"{_holder(lease)} has not renewed its Lease for {age_s:.0f} s: nobody acts"
        return fail("leader", told, look)
    return ok("leader", f"{_holder(lease)} in {lease['metadata']['namespace']}")


def _holder(lease: Object) -> str:
    return lease["spec"].get("holderIdentity") or ""


def _age_s(lease: Object, now: datetime) -> float:
    renewed = lease["spec"].get("renewTime")
    return (now - datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")


def _life_s(lease: Object) -> float:
    return float(lease["spec"].get("leaseDurationSeconds") or 0) + _SLACK_S
