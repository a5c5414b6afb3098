"""Writes an answer as a response object: whole, or as a stream of events."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from yaie.server.answers.answer import Answer
from yaie.server.answers.items import EVENT_END, Event, Items, ItemStream
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.response_store import Stored
from yaie.server.openai.logprobs import TokenForms
from yaie.server.responses.input import input_items
from yaie.server.responses.logprobs import TextLogprobs
from yaie.server.responses.output import ItemMaker
from yaie.server.responses.tools import Toolbox
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.errors import InvalidRequestError, YaieError
from yaie_api.http.openai import Usage
from yaie_api.http.responses import ENCRYPTED_REASONING, ResponsesRequest


class ResponseWriter:
    """Writes one answer as a response object, whole or as a stream of events.

    `items`: the conversation so far, with the request's own items. `head`: the fields that do not
    change. `keep`: stores the finished response. `tools`: the tools by the names that the model
    sees.
    """

    def __init__(
        self,
        answer: Answer,
        body: ResponsesRequest,
        *,
        items: list[dict[str, Any]],
        head: dict[str, Any],
        keep: Callable[[Stored], None],
        tools: Toolbox,
        tokenizer: Tokenizer,
    ) -> None:
        self._keep = keep
        self._body = body
        self._input = items
        self._answer = answer
        self._logprobs = TextLogprobs(TokenForms(tokenizer))
        make = ItemMaker(
            tools.offered, self._logprobs, encrypted=body.includes(ENCRYPTED_REASONING)
        )
        self._items = Items(make)
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
        if delta.logprobs:
            self._logprobs.hold(delta)
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


def head_of(body: ResponsesRequest, model: str, response_id: str) -> dict[str, Any]:
    """Return the fields of a response as they are at its beginning."""
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
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "frequency_penalty": body.frequency_penalty,
        "parallel_tool_calls": body.parallel_tool_calls,
        "presence_penalty": body.presence_penalty,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.store,
        "temperature": body.temperature,
        "text": _text(body),
        "tool_choice": body.tool_choice,
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": body.truncation,
        "usage": None,
        "user": body.user,
    }


def _text(body: ResponsesRequest) -> dict[str, Any]:
    text = {"format": body.text_format.model_dump(by_alias=True, exclude_none=True)}
    verbosity = body.text and body.text.verbosity
    return text | ({"verbosity": verbosity} if verbosity else {})


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
