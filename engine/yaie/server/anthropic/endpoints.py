"""POST /v1/messages and /v1/messages/count_tokens. Requests are served as chats."""

import uuid
from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer
from yaie.server.answers.items import Event, Items, ItemStream
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.anthropic.input import renamed, to_chat
from yaie.server.anthropic.output import block_for
from yaie.server.openai.chat import start_chat
from yaie.server.request.http import json_response, left_response, read_json, service_of
from yaie.server.request.open_request import open_request
from yaie.server.request.prompts import chat_ids
from yaie_api.errors import InvalidRequestError, YaieError
from yaie_api.http import envelopes
from yaie_api.http.anthropic import CountTokensRequest, MessagesRequest
from yaie_api.http.openai import Usage
from yaie_api.http.wire import parse

_STOP_REASONS: Final = {"length": "max_tokens", "tool_calls": "tool_use"}


async def messages(request: Request) -> Any:
    context = await open_request(request, MessagesRequest)
    try:
        answer = await start_chat(context.with_body(to_chat(context.body)))
    except InvalidRequestError as error:
        raise renamed(error) from None
    writer = MessageWriter(answer, context.model)
    if context.body.stream:
        ping_s = context.service.options.sse_keep_alive_s
        return EventStream(writer.stream, ping_s=ping_s, done=b"")
    found = await until_disconnect(request.receive, writer.whole())
    return left_response() if found is None else json_response(found)


async def count_tokens(request: Request) -> Response:
    service = service_of(request)
    body = parse(CountTokensRequest, await read_json(request))
    service.check_model(body.model)
    return json_response({"input_tokens": len(await chat_ids(service, to_chat(body)))})


class MessageWriter:
    """Writes one answer as a message, whole or as a stream of events."""

    def __init__(self, answer: Answer, model: str) -> None:
        self._answer = answer
        self._blocks = Items(block_for)
        self._head = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._end: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}

    async def whole(self) -> dict[str, Any]:
        """Wait for the end and return the message."""
        (choice,) = await self._answer.whole()
        for _ in self._events(choice.as_delta()):
            continue
        return self._message()

    async def stream(self, out: ResponseBody) -> None:
        """Write every event. After an error, the last one is `error`."""
        sink = ItemStream(self._blocks, self._events, out)
        sink.tell({"type": "message_start", "message": self._message()})
        sink.tell({"type": "ping"})
        try:
            await relay([self._answer], sink, out)
            usage = _usage(self._answer.usage)
            sink.tell({"type": "message_delta", "delta": self._end, "usage": usage})
            sink.tell({"type": "message_stop"})
        except YaieError as error:
            sink.tell(envelopes.anthropic(error))

    def _events(self, delta: Delta) -> Iterator[Event]:
        yield from self._blocks.push(delta.parts)
        if delta.finish_reason is not None:
            yield from self._blocks.finish("completed")
            self._end = _end(delta)

    def _message(self) -> dict[str, Any]:
        usage = _usage(self._answer.usage)
        return self._head | {"content": self._blocks.output, "usage": usage} | self._end


def _end(delta: Delta) -> dict[str, Any]:
    """Return why the message ended, in Anthropic's terms."""
    sequence = delta.stop_reason if isinstance(delta.stop_reason, str) else None
    reason = _STOP_REASONS.get(delta.finish_reason or "", "end_turn")
    if sequence is not None and reason == "end_turn":
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": sequence}


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the usage. Anthropic's input_tokens do not include those from the prefix cache."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }
