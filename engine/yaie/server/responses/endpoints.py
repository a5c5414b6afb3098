"""POST /v1/responses, and the endpoints of stored responses. Requests are served as chats."""

import asyncio
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer
from yaie.server.answers.response_store import Stored
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.headers import tenant_and_timeout
from yaie.server.openai.chat import start_chat
from yaie.server.params import output_room
from yaie.server.request import left_out
from yaie.server.request.http import json_response, left_response, service_of
from yaie.server.request.open_request import ServeContext, open_request
from yaie.server.request.prompts import chat_ids
from yaie.server.responses.input import RECORDS, input_items, renamed, to_chat
from yaie.server.responses.tool_choice import read_choice
from yaie.server.responses.tools import Toolbox, grammar_size, read_tools
from yaie.server.responses.truncation import shortened
from yaie.server.responses.writer import ResponseWriter, head_of
from yaie_api.errors import ContextLengthError, InvalidRequestError, NotFoundError
from yaie_api.http.responses import InputTokensRequest, ResponsesRequest
from yaie_api.response_id import new_response_id

Item = dict[str, Any]
IN_THREAD_GRAMMAR: Final = 4096
"""Characters of grammars that take at most 10 ms to rewrite."""

_LIFE: Final = (
    "Responses are stored in the memory of the engine that made them: with `store` off, after a "
    "restart of that engine, or after many newer ones, they are gone."
)


async def responses(request: Request) -> Any:
    context = await open_request(request, ResponsesRequest)
    service, body = context.service, context.body
    tools = await _toolbox(body)
    items = [*await _earlier(context), *input_items(body)]
    answer = await _start(context, items, tools)
    keep = partial(service.responses.put, context.tenant)
    head = head_of(body, context.model, new_response_id(service.options.response_mark))
    writer = ResponseWriter(
        answer, body, items=items, head=head, keep=keep, tools=tools, tokenizer=service.tokenizer
    )
    told = left_out.headers(_left_out(body, items, tools))
    if body.stream:
        ping_s = service.options.sse_keep_alive_s
        return EventStream(writer.stream, ping_s=ping_s, done=b"", headers=told)
    found = await until_disconnect(request.receive, writer.whole())
    return left_response() if found is None else json_response(found, headers=told)


async def input_tokens(request: Request) -> Response:
    """Count the tokens of a response's prompt."""
    context = await open_request(request, InputTokensRequest)
    tools = await _toolbox(context.body)
    items = [*await _earlier(context), *input_items(context.body)]
    chat = to_chat(context.body, items, tools)
    try:
        prompt = await chat_ids(context.service, chat, limited=False)
    except InvalidRequestError as error:
        raise renamed(error) from None
    told = left_out.headers(_left_out(context.body, items, tools))
    count = {"object": "response.input_tokens", "input_tokens": len(prompt)}
    return json_response(count, headers=told)


async def _toolbox(body: InputTokensRequest) -> Toolbox:
    """Read the tools, in a thread when their grammars are long."""
    if grammar_size(body.tools) < IN_THREAD_GRAMMAR:
        return read_tools(body.tools)
    return await asyncio.to_thread(read_tools, body.tools)


async def _start(
    context: ServeContext[ResponsesRequest], items: list[Item], tools: Toolbox
) -> Answer:
    """Submit the request, without its oldest items if they do not fit and may be dropped."""
    body = context.body
    choice = read_choice(body.tool_choice, tools)
    limits = tools.limits(choice.allowed)

    async def submit(kept: list[Item]) -> Answer:
        return await start_chat(context.with_body(to_chat(body, kept, tools, choice)), limits)

    async def fits(kept: list[Item]) -> bool:
        chat = to_chat(body, kept, tools, choice)
        try:
            prompt = await chat_ids(context.service, chat)
            limit = body.max_output_tokens
            output_room(context.service.info, len(prompt), limit, default=None, param="input")
        except ContextLengthError:
            return False
        return True

    try:
        try:
            return await submit(items)
        except ContextLengthError:
            kept = await shortened(items, fits) if body.truncation == "auto" else None
            if kept is None:
                raise
            return await submit(kept)
    except InvalidRequestError as error:
        raise renamed(error, tools.paths) from None


def _left_out(body: InputTokensRequest, items: list[Item], tools: Toolbox) -> list[str]:
    """Say what of the request has no effect."""
    found = [f"tools of type {kind}" for kind in tools.left_out]
    records = dict.fromkeys(item["type"] for item in items if item.get("type") in RECORDS)
    found += [f"items of type {kind}" for kind in records]
    verbosity = body.text and body.text.verbosity
    if verbosity not in (None, "medium"):
        found.append("text.verbosity")
    return [*found, *body.unknown_fields]


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


async def _earlier(context: ServeContext[InputTokensRequest]) -> list[dict[str, Any]]:
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
