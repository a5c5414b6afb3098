"""POST /v1/responses, and the endpoints of stored responses. Requests are served as chats."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer
from yaie.server.answers.items import EVENT_END, Event, Items, ItemStream
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.response_store import Stored
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.headers import tenant_and_timeout
from yaie.server.openai.chat import start_chat
from yaie.server.request.http import json_response, left_response, service_of
from yaie.server.request.open_request import ServeContext, open_request
from yaie.server.responses.input import input_items, renamed, to_chat
from yaie.server.responses.output import item_for
from yaie_api.errors import InvalidRequestError, NotFoundError, YaieError
from yaie_api.http.openai import Usage
from yaie_api.http.responses import ResponsesRequest
from yaie_api.response_id import new_response_id

_LIFE: Final = (
    "Responses are stored in the memory of the engine that made them: with `store` off, after a "
    "restart of that engine, or after many newer ones, they are gone."
)


async def responses(request: Request) -> Any:
    context = await open_request(request, ResponsesRequest)
    service, body = context.service, context.body
    items = [*await _earlier(context), *input_items(body)]
    try:
        answer = await start_chat(context.with_body(to_chat(body, items)))
    except InvalidRequestError as error:
        raise renamed(error) from None
    keep = partial(service.responses.put, context.tenant)
    head = _head(body, context.model, new_response_id(service.options.response_mark))
    writer = ResponseWriter(answer, body, items=items, head=head, keep=keep)
    if body.stream:
        return EventStream(writer.stream, ping_s=service.options.sse_keep_alive_s, done=b"")
    found = await until_disconnect(request.receive, writer.whole())
    return left_response() if found is None else json_response(found)


async def get_response(request: Request) -> Response:
    """Return a stored response.

    Raises:
        InvalidRequestError: the client asked for a stream.

    """
    if request.query_params.get("stream") == "true":
        raise InvalidRequestError(
            "A stored response is told whole; leave stream out.",
            param="stream",
            code="unsupported_parameter",
        )
    return json_response((await _stored(request)).response)


async def get_input_items(request: Request) -> Response:
    """Return the input items of a stored response's request."""
    data = (await _stored(request)).input_items
    ends = {"first_id": data[0].get("id"), "last_id": data[-1].get("id")} if data else {}
    empty = {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": data, "has_more": False} | empty | ends)


async def delete_response(request: Request) -> Response:
    response_id = (await _stored(request)).response["id"]
    service = service_of(request)
    tenant, _ = tenant_and_timeout(request.headers, service.options)
    await service.forget_response(tenant, response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(request: Request) -> Response:
    """Refuse to cancel: no response runs in the background. Closing its connection cancels it.

    Raises:
        InvalidRequestError: the response is stored, so it has ended.
        NotFoundError: it is not stored.

    """
    await _stored(request)
    raise InvalidRequestError(
        "Only responses in the background can be cancelled, and this server has none. "
        "Close the connection of a running one.",
        param="response_id",
    )


async def _stored(request: Request) -> Stored:
    service, response_id = service_of(request), request.path_params["response_id"]
    tenant, _ = tenant_and_timeout(request.headers, service.options)
    found = await service.stored_response(tenant, response_id)
    if found is None:
        raise NotFoundError(
            f"There is no such response. {_LIFE}",
            param="response_id",
            code="response_not_found",
        )
    return found


async def _earlier(context: ServeContext[ResponsesRequest]) -> list[dict[str, Any]]:
    """Return the items of the conversation that this request continues."""
    previous = context.body.previous_response_id
    if previous is None:
        return []
    found = await context.service.stored_response(context.tenant, previous)
    if found is None:
        raise InvalidRequestError(
            f"There is no such previous response. {_LIFE} Send its items as input instead.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found.items


class ResponseWriter:
    """Writes one answer as a response object, whole or as a stream of events.

    `items`: the conversation so far, with the request's own items. `head`: the fields that do not
    change. `keep`: stores the finished response.
    """

    def __init__(
        self,
        answer: Answer,
        body: ResponsesRequest,
        *,
        items: list[dict[str, Any]],
        head: dict[str, Any],
        keep: Callable[[Stored], None],
    ) -> None:
        self._keep = keep
        self._body = body
        self._input = items
        self._answer = answer
        self._items = Items(item_for)
        self._head = head

    async def whole(self) -> dict[str, Any]:
        """Wait for the end and return the response."""
        (choice,) = await self._answer.whole()
        for _ in self._events(choice.as_delta()):
            continue
        return self._finished

    async def stream(self, out: ResponseBody) -> None:
        """Write every event. After an error, the last one is `response.failed`."""
        sink = _ResponseStream(self._items, self._events, out)
        begun = self._response("in_progress")
        sink.tell({"type": "response.created", "response": begun})
        sink.tell({"type": "response.in_progress", "response": begun})
        try:
            await relay([self._answer], sink, out)
            kind = self._finished["status"]
            sink.tell({"type": f"response.{kind}", "response": self._finished})
        except YaieError as error:
            wrong = isinstance(error, InvalidRequestError)
            code = "invalid_prompt" if wrong else "server_error"
            failure = {"code": code, "message": error.message}
            failed = self._response("failed") | {"error": failure}
            sink.tell({"type": "response.failed", "response": failed})

    def _events(self, delta: Delta) -> Iterator[Event]:
        yield from self._items.push(delta.parts)
        if delta.finish_reason is None:
            return
        status = "incomplete" if delta.finish_reason == "length" else "completed"
        yield from self._items.finish(status)
        self._finish(status)

    def _finish(self, status: str) -> None:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        self._finished = self._response(status) | {
            "incomplete_details": reason,
            "completed_at": int(time.time()) if status == "completed" else None,
            "usage": _usage(self._answer.usage),
        }
        if self._body.store:
            everything = [*self._input, *self._items.output]
            stored = Stored(self._finished, input_items(self._body), everything)
            self._keep(stored)

    def _response(self, status: str) -> dict[str, Any]:
        return self._head | {"status": status, "output": self._items.output}


class _ResponseStream(ItemStream):
    """Numbers the events that it writes."""

    def __init__(
        self, items: Items, events: Callable[[Delta], Iterable[Event]], out: ResponseBody
    ) -> None:
        super().__init__(items, events, out)
        self._numbers = count()

    def tell(self, event: Event) -> None:
        super().tell(event | {"sequence_number": next(self._numbers)})

    def end_of_growth(self, after: bytes) -> bytes:
        return b'%b,"sequence_number":%d%b' % (
            after[: -len(EVENT_END)],
            next(self._numbers),
            EVENT_END,
        )


def _head(body: ResponsesRequest, model: str, response_id: str) -> dict[str, Any]:
    """Return the fields of a response as they are at its beginning."""
    form = body.text_format
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
        "service_tier": "default",
        "store": body.store,
        "temperature": body.temperature,
        "text": {"format": form.model_dump(by_alias=True, exclude_none=True)},
        "tool_choice": body.tool_choice,
        "tools": body.tools or [],
        "top_p": body.top_p,
        "truncation": body.truncation,
        "usage": None,
        "user": body.user,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
