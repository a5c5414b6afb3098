"""The Kubernetes REST API of this machine, on a unix socket, for router pods and the `yaie`
commands. The socket is in a private folder, so only its owner can connect.

    GET    /apis/GROUP/VERSION/namespaces/NS/PLURAL            list; ?watch=true follows
    GET    …/PLURAL/NAME  · POST …/PLURAL · DELETE …/NAME
    PATCH  …/NAME         application/apply-patch+yaml or application/merge-patch+json
    …/NAME/status · …/NAME/scale · pods/NAME/log
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import yaml
from aiohttp import web

from yaie_local import kinds
from yaie_local.apiserver import logs, watch
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.apiserver.store import ExpiredError
from yaie_local.kinds import Resource
from yaie_local.objects import Ref, name_of, ref
from yaie_local.state import StateFolder
from yaie_operator.cluster import ConflictError, NotFoundError, Object, RefusedError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
MAX_BODY_BYTES: Final = 3 << 20
_REASONS: Final = {
    400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 409: "Conflict", 410: "Expired",
    415: "UnsupportedMediaType", 422: "Invalid",
}  # fmt: skip


class LocalAPI:
    """Routes requests to the verbs; `application` makes the aiohttp application."""

    def __init__(self, verbs: Verbs, state: StateFolder) -> None:
        self._verbs = verbs
        self._state = state

    def application(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_status], client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/version", _version)
        for base in ("/api/{version}", "/apis/{group}/{version}"):
            self._add_routes(app.router, base)
        return app

    def _add_routes(self, router: web.UrlDispatcher, base: str) -> None:
        spaced = base + "/namespaces/{namespace}/{plural}"
        one = spaced + "/{name}"
        router.add_get(base + "/{plural}", self.list)
        router.add_get(spaced, self.list)
        router.add_post(spaced, self.create)
        router.add_get(one, self.get)
        router.add_patch(one, self.patch)
        router.add_delete(one, self.delete)
        router.add_patch(one + "/status", self.patch_status)
        router.add_get(one + "/scale", self.get_scale)
        router.add_patch(one + "/scale", self.patch_scale)
        router.add_get(one + "/log", self.log)

    async def list(self, request: web.Request) -> web.StreamResponse:
        resource = _resource(request)
        namespace = request.match_info.get("namespace")
        selector = labels_of_query(request.query.get("labelSelector", ""))
        if request.query.get("watch") in ("true", "1"):
            wanted = watch.Wanted(resource, namespace, selector)
            return await watch.stream(request, self._verbs.store, wanted)
        found = self._verbs.store.list(resource.kind, namespace=namespace, labels=selector)
        return web.json_response(
            {
                "apiVersion": resource.kind.api_version,
                "kind": f"{resource.kind.kind}List",
                "metadata": {"resourceVersion": str(self._verbs.store.version)},
                "items": found,
            }
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self._verbs.get(_target(request)))

    async def create(self, request: web.Request) -> web.StreamResponse:
        obj = _placed(request, await _body(request))
        created = self._verbs.create(obj, manager=_manager(request))
        return web.json_response(created, status=201)

    async def patch(self, request: web.Request) -> web.StreamResponse:
        """Answer a server-side apply or a merge patch.

        Raises:
            HTTPUnsupportedMediaType: the content type is neither of the two.
            RefusedError: the object's name differs from the one in the URL.

        """
        target, body = _target(request), await _body(request)
        if request.content_type == APPLY:
            obj = _placed(request, body)
            if name_of(obj) != target.name:
                raise RefusedError("the name of the object does not match the name on the URL")
            existed = self._verbs.store.get(target) is not None
            force = request.query.get("force") == "true"
            done = self._verbs.apply(
                obj, manager=_manager(request), force=force, dry_run=_is_dry_run(request)
            )
            return web.json_response(done, status=200 if existed else 201)
        if request.content_type == MERGE:
            done = self._verbs.merge_patch(target, body, manager=_manager(request))
            return web.json_response(done)
        raise web.HTTPUnsupportedMediaType(text=f"write {APPLY} or {MERGE}")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        live = self._verbs.get(_target(request))
        options = await _body(request) if request.can_read_body else {}
        guarded = _with_preconditions(live, options.get("preconditions") or {})
        self._verbs.delete(guarded, grace_s=options.get("gracePeriodSeconds"))
        return web.json_response({"apiVersion": "v1", "kind": "Status", "status": "Success"})

    async def patch_status(self, request: web.Request) -> web.StreamResponse:
        """Answer a merge patch of a status.

        Raises:
            HTTPNotFound: the kind has no status subresource.

        """
        if not _resource(request).has_status:
            raise web.HTTPNotFound(text="no status subresource")
        live, body = self._verbs.get(_target(request)), await _body(request)
        given = (body.get("metadata") or {}).get("resourceVersion")
        guarded = _with_preconditions(live, {"resourceVersion": given})
        done = self._verbs.patch_status(guarded, body.get("status") or {})
        return web.json_response(done)

    async def get_scale(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(_scale(self._verbs.get(_target(request))))

    async def patch_scale(self, request: web.Request) -> web.StreamResponse:
        """Answer a merge patch of a scale.

        Raises:
            HTTPNotFound: the kind has no scale subresource.
            RefusedError: spec.replicas is not a whole number of at least 0.

        """
        resource, target, body = _resource(request), _target(request), await _body(request)
        replicas = (body.get("spec") or {}).get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            raise RefusedError("spec.replicas: write a whole number of at least 0")
        if not resource.has_scale:
            raise web.HTTPNotFound(text="no scale subresource")
        given = (body.get("metadata") or {}).get("resourceVersion")
        self._verbs.store.expect(
            _with_preconditions(self._verbs.get(target), {"resourceVersion": given})
        )
        done = self._verbs.set_scale(target, replicas, manager=_manager(request))
        return web.json_response(_scale(done))

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Answer with the log of a pod.

        Raises:
            HTTPNotFound: the kind is not Pod.

        """
        if _resource(request) is not kinds.PODS:
            raise web.HTTPNotFound(text="only pods have logs")
        pod = self._verbs.get(_target(request))
        return await logs.respond(request, self._state.logs / f"{name_of(pod)}.log")


@web.middleware
async def errors_as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert every error into a Kubernetes Status with a message for the user."""
    try:
        return await handler(request)
    except NotFoundError as error:
        return status_response(404, str(error))
    except ConflictError as error:
        return status_response(409, str(error))
    except RefusedError as error:
        return status_response(422, str(error))
    except ExpiredError as error:
        return status_response(410, str(error))
    except web.HTTPException as error:
        return status_response(error.status, error.text or error.reason)


def status_body(code: int, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": _REASONS.get(code, "InternalError"),
        "message": message,
    }


def status_response(code: int, message: str) -> web.Response:
    return web.json_response(status_body(code, message), status=code)


def labels_of_query(selector: str) -> dict[str, str]:
    """Parse a label selector such as `a=b,c==d`.

    Raises:
        HTTPBadRequest: a part of the selector is not an equality.

    """
    labels = {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.replace("==", "=").partition("=")
        if not equals or key.endswith("!") or " " in key.strip():
            raise web.HTTPBadRequest(text=f"labelSelector: only KEY=VALUE is understood: {part}")
        labels[key.strip()] = value.strip()
    return labels


async def _version(request: web.Request) -> web.StreamResponse:
    del request
    from yaie_api import __version__

    return web.json_response({"gitVersion": f"yaie-{__version__}"})


def _resource(request: web.Request) -> Resource:
    info = request.match_info
    group = f"{info['group']}/" if "group" in info else ""
    found = kinds.of_path(group + info["version"], info["plural"])
    if found is None:
        raise web.HTTPNotFound(text="the server could not find the requested resource")
    return found


def _target(request: web.Request) -> Ref:
    kind = _resource(request).kind
    info = request.match_info
    return Ref(kind.api_version, kind.kind, info["namespace"], info["name"])


def _manager(request: web.Request) -> str:
    return request.query.get("fieldManager", "yaie")


def _is_dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


async def _body(request: web.Request) -> dict[str, Any]:
    """Parse the body as JSON, or as YAML for server-side apply.

    Raises:
        HTTPBadRequest: the body is not an object in this format.

    """
    text = await request.text()
    try:
        parsed = yaml.safe_load(text) if request.content_type == APPLY else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise web.HTTPBadRequest(text=f"the body is not readable: {error}") from error
    if not isinstance(parsed, dict):
        raise web.HTTPBadRequest(text="the body must be an object")
    return parsed


def _placed(request: web.Request, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the type and namespace of the URL.

    Raises:
        RefusedError: the object has another type or namespace, or no name.

    """
    kind, info = _resource(request).kind, request.match_info
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping) or not meta.get("name"):
        raise RefusedError("metadata.name: Required value: name or generateName is required")
    placed = {
        **obj,
        "apiVersion": obj.get("apiVersion", kind.api_version),
        "kind": obj.get("kind", kind.kind),
        "metadata": {"namespace": info["namespace"], **meta},
    }
    if ref(placed)[:3] != (kind.api_version, kind.kind, info["namespace"]):
        raise RefusedError("apiVersion, kind or namespace of the object do not match the URL")
    return placed


def _with_preconditions(live: Object, given: Mapping[str, Any]) -> Object:
    """The live object with the uid and resourceVersion that the client requires."""
    wanted = {key: given[key] for key in ("uid", "resourceVersion") if given.get(key)}
    return {**live, "metadata": {**live["metadata"], **wanted}}


def _scale(obj: Object) -> dict[str, Any]:
    meta, status = obj["metadata"], obj.get("status") or {}
    replicas = status.get("replicas", 0)
    current = replicas.get("current", 0) if isinstance(replicas, Mapping) else replicas
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {"replicas": current, "selector": status.get("selector", "")},
    }
