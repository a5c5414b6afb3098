"""POST /v1/messages and /v1/messages/count_tokens. Requests are served as chats."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer
from yaie.server.answers.items import Event, Items, ItemStream
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.anthropic.context_management import manage, num_tokens
from yaie.server.anthropic.input import left_out as unused
from yaie.server.anthropic.input import marks_cache, renamed, to_chat
from yaie.server.anthropic.output import block_for
from yaie.server.openai.chat import start_chat
from yaie.server.request import left_out
from yaie.server.request.http import json_response, left_response, read_json, service_of
from yaie.server.request.open_request import open_request
from yaie_api.errors import InvalidRequestError, YaieError
from yaie_api.http import envelopes
from yaie_api.http.anthropic import CountTokensRequest, MessagesRequest
from yaie_api.http.wire import parse

_STOP_REASONS: Final = {"length": "max_tokens", "tool_calls": "tool_use"}


async def messages(request: Request) -> Any:
    context = await open_request(request, MessagesRequest, replays=lambda body: body.stream)
    managed = await manage(context.service, context.body)
    body = managed.body
    try:
        answer = await start_chat(context.with_body(to_chat(body)))
    except InvalidRequestError as error:
        raise renamed(error, body) from None
    edits = None if body.context_management is None else managed.applied
    page_size = context.service.info.page_size if marks_cache(body) else None
    name = f"msg_{context.nonce}"
    writer = MessageWriter(answer, context.model, name, edits=edits, page_size=page_size)
    told = left_out.headers(unused(body))
    if body.stream:
        ping_s = context.service.options.sse_keep_alive_s
        return EventStream(
            writer.stream, ping_s=ping_s, done=b"", headers=told, recorder=context.recorder
        )
    found = await until_disconnect(request.receive, writer.whole())
    return left_response() if found is None else json_response(found, headers=told)


async def count_tokens(request: Request) -> Response:
    service = service_of(request)
    body = parse(CountTokensRequest, await read_json(request))
    service.check_model(body.model)
    managed = await manage(service, body)
    count: dict[str, Any] = {"input_tokens": await num_tokens(service, managed.body)}
    if body.context_management is not None:
        before = await num_tokens(service, body)
        count["context_management"] = {"original_input_tokens": before}
    return json_response(count, headers=left_out.headers(unused(body)))


class MessageWriter:
    """Writes one answer as a message, whole or as a stream of events.

    `name`: the message's id. `edits`: what was taken out of the conversation, if the client asks
    for that. `page_size`: tokens of a page of the prefix cache, if the client marks what to cache.
    """

    def __init__(
        self,
        answer: Answer,
        model: str,
        name: str,
        *,
        edits: Sequence[Mapping[str, Any]] | None = None,
        page_size: int | None = None,
    ) -> None:
        self._answer = answer
        self._page_size = page_size
        self._managed = {} if edits is None else {"context_management": {"applied_edits": edits}}
        self._blocks = Items(block_for)
        self._head = {
            "id": name,
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
            end = {"type": "message_delta", "delta": self._end, "usage": self._usage()}
            sink.tell(end | self._managed)
            sink.tell({"type": "message_stop"})
        except YaieError as error:
            sink.tell(envelopes.anthropic(error))

    def _events(self, delta: Delta) -> Iterator[Event]:
        yield from self._blocks.push(delta.parts)
        if delta.finish_reason is not None:
            yield from self._blocks.finish("completed")
            self._end = _end(delta)

    def _message(self) -> dict[str, Any]:
        content = {"content": self._blocks.output, "usage": self._usage()}
        return self._head | content | self._end | self._managed

    def _usage(self) -> dict[str, Any]:
        """Return the usage. Anthropic's input_tokens are those that the prefix cache neither had
        nor was asked to keep.
        """
        usage = self._answer.usage
        new = usage.prompt_tokens - usage.cached_tokens
        kept = 0
        if self._page_size is not None:
            whole_pages = usage.prompt_tokens // self._page_size * self._page_size
            kept = max(0, whole_pages - usage.cached_tokens)
        return {
            "input_tokens": new - kept,
            "cache_read_input_tokens": usage.cached_tokens,
            "cache_creation_input_tokens": kept,
            "cache_creation": {"ephemeral_5m_input_tokens": kept, "ephemeral_1h_input_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
            "service_tier": "standard",
        }


def _end(delta: Delta) -> dict[str, Any]:
    """Return why the message ended, in Anthropic's terms."""
    sequence = delta.stop_reason if isinstance(delta.stop_reason, str) else None
    reason = _STOP_REASONS.get(delta.finish_reason or "", "end_turn")
    if sequence is not None and reason == "end_turn":
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": sequence}
