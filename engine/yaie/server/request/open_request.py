"""How every request for the model begins: its headers and body are checked, its model is found."""

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request

from yaie.config import Task
from yaie.server import figures
from yaie.server.answers.replay import Recorder
from yaie.server.headers import tenant_and_timeout
from yaie.server.request.http import read_json_and_tail, service_of
from yaie.server.request.prefix_keys import prefix_keys
from yaie.server.service import Service
from yaie_api.errors import InvalidRequestError, UnavailableError
from yaie_api.http.replay import Identity
from yaie_api.http.wire import ModelRequest, NamedRequest, parse
from yaie_api.logs import fields
from yaie_api.names import HEADER_REPLAY
from yaie_api.prefix import PrefixKeys

log = logging.getLogger(__name__)

Body = TypeVar("Body", bound=ModelRequest)
Body_co = TypeVar("Body_co", bound=ModelRequest, covariant=True)


@dataclass(frozen=True, slots=True)
class ServeContext(Generic[Body_co]):
    """A checked request, with what serving it needs (vLLM's `ServeContext`).

    Attributes:
        service: the state of this HTTP process.
        body: the checked body.
        model: the model name to answer with.
        started_s: when the request arrived, on the monotonic clock.
        tenant: whose share of the engine it counts against; "": tenants are not told apart.
        timeout_s: how long the client waits; None: it does not say.
        prefix: the prefix keys of its body; None: they are not published.
        recorder: of its stream, if another engine can continue that.

    """

    service: Service
    body: Body_co
    model: str
    started_s: float
    tenant: str
    timeout_s: float | None
    prefix: PrefixKeys | None = None
    recorder: Recorder | None = None

    @property
    def created_s(self) -> int:
        """When the answer begins, in seconds since 1970."""
        return int(time.time()) if self.recorder is None else self.recorder.identity.created_s

    @property
    def nonce(self) -> str:
        """Thirty-two hex digits that no other request has."""
        return uuid.uuid4().hex if self.recorder is None else self.recorder.identity.nonce

    def with_body(self, body: Body) -> "ServeContext[Body]":
        """Return the same request with its body converted to another type."""
        return ServeContext(
            self.service,
            body,
            self.model,
            self.started_s,
            self.tenant,
            self.timeout_s,
            self.prefix,
            self.recorder,
        )


Named = TypeVar("Named", bound=NamedRequest)


def answer_id(kind: str, context: ServeContext[Named]) -> str:
    """Return the id of an answer: its kind, then the client's own name of the request, if any."""
    return f"{kind}-{context.body.request_id or context.nonce}"


async def open_request(
    request: Request,
    kind: type[Body],
    *,
    task: Task | None = "generate",
    replays: Callable[[Body], bool] | None = None,
) -> ServeContext[Body]:
    """Start the request's clock, read and check its body, and find its model.

    `task`: what the model has to be able to do; None: the endpoint checks that itself. `replays`:
    whether another engine could continue the answer; None: it never could.

    Raises:
        InvalidRequestError: the request is wrong, or the model cannot do the task.
        NotFoundError: this server has no such model.
        UnavailableError: the server is draining, or has not loaded its model yet.

    """
    started_s, service = time.monotonic(), service_of(request)
    tenant, timeout_s = tenant_and_timeout(request.headers, service.options)
    if service.draining:
        raise UnavailableError("The server is shutting down.", code="draining", retry_after_s=1.0)
    identity = Identity.read(request.headers.get(HEADER_REPLAY, ""))
    tail_bytes = (identity and identity.tail_bytes) or 0
    found, tail = await read_json_and_tail(request, tail_bytes)
    body = parse(kind, found)
    model = service.check_model(body.model)
    figures.note_model(model)
    if task is not None:
        service.info.require(task)
    if body.unknown_fields:
        service.metrics.unknown_fields(len(body.unknown_fields))
        log.debug("unknown fields", extra=fields(count=len(body.unknown_fields)))
    prefix = prefix_keys(service, found, tenant) if task == "generate" else None
    recorder = None
    if identity is not None and replays is not None and replays(body):
        recorder = Recorder(identity, tail)
    elif tail:
        raise InvalidRequestError("No other engine can continue the answer to this request.")
    return ServeContext(service, body, model, started_s, tenant, timeout_s, prefix, recorder)
