"""What a request is told whose path or method has no handler.

The child of a path that holds no such thing, as `/v1/responses/compact`, is an unknown path (404)
whatever the method: 405 would say that another method finds something there.
"""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.routing import Match, Route

from yaie.server.request.http import service_of
from yaie_api.errors import MethodNotAllowedError, NotFoundError
from yaie_api.http.paths import no_such_path
from yaie_api.response_id import PREFIX


def unknown_path(request: Request) -> NotFoundError:
    """The error of a path that no route has, with the path that was probably meant."""
    return no_such_path(request.url.path, [route.path for route in _routes(request)])


def wrong_method(request: Request) -> tuple[NotFoundError | MethodNotAllowedError, dict[str, str]]:
    """The error of a path that has routes, but none for the method; and its headers."""
    fitting = [route for route in _routes(request) if _match(route, request)[0] != Match.NONE]
    if not any(_may_exist(request, _match(route, request)[1]) for route in fitting):
        return unknown_path(request), {}
    methods = sorted({method for route in fitting for method in route.methods or ()})
    use = " or ".join(method for method in methods if method != "HEAD")
    error = MethodNotAllowedError(f"{request.method} is not allowed here; use {use}.")
    return error, {"allow": ", ".join(methods)}


def _routes(request: Request) -> Iterable[Route]:
    return (route for route in request.app.routes if isinstance(route, Route))


def _match(route: Route, request: Request) -> tuple[Match, dict[str, str]]:
    match, scope = route.matches(request.scope)
    return match, scope.get("path_params", {})


def _may_exist(request: Request, named: dict[str, str]) -> bool:
    """Whether what the path names may be there. `named`: the values of its placeholders."""
    if "model" in named:
        return named["model"] in service_of(request).names
    return named.get("response_id", PREFIX).startswith(PREFIX)
