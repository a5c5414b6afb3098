"""The beginning of every request that a model works on, the same for all endpoints."""

from typing import Generic, NamedTuple, TypeVar

from starlette.requests import Request

from yaie.config import Task
from yaie.server.caller import Caller
from yaie.server.request.http import read_json, service_of
from yaie.server.service import Service
from yaie_api.http.wire import ModelRequest, parse

Body = TypeVar("Body", bound=ModelRequest)


class Opened(NamedTuple, Generic[Body]):
    """A request that may be served. `model`: the name to answer with."""

    service: Service
    caller: Caller
    body: Body
    model: str


async def open_request(
    request: Request, kind: type[Body], *, task: Task | None = "generate"
) -> Opened[Body]:
    """Start the request's clock, read and check its body, and find its model.

    `task`: what the model has to be able to do; None: that is seen later.

    Raises:
        InvalidRequestError: what is wrong with it, or that the model cannot do it.
        NotFoundError: no such model here.
        UnavailableError: the server drains, or has no model yet.

    """
    service = service_of(request)
    caller = service.caller(request.headers)
    service.refuse_when_draining()
    body = parse(kind, await read_json(request))
    model = service.check_model(body.model)
    if task is not None:
        service.info.require(task)
    service.count_unknown(body.unknown_fields)
    return Opened(service, caller, body, model)
