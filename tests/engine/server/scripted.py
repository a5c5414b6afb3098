"""The application in this process over an engine that says what a test has written down."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai

from engine.text.vocabularies import byte_level, write_model_folder
from yaie.config import ModelInfo
from yaie.core.messages import Abort, Accepted, Command, Event, Generate, TokenLogprobs, Tokens
from yaie.server.anthropic.endpoints import count_tokens, messages
from yaie.server.engine.client import AsyncEngine
from yaie.server.metrics import ServerMetrics
from yaie.server.openai.chat import chat_completions
from yaie.server.openai.completions import completions
from yaie.server.openai.tokenize import tokenize
from yaie.server.options import ServiceOptions
from yaie.server.responses.endpoints import input_tokens, responses
from yaie.server.routes import ENDPOINTS, Endpoint
from yaie.server.service import Service
from yaie.server.web.app import create_app
from yaie.server.web.edge import Edge
from yaie_api.tracing.spans import SpanSink

GENERATING = [
    dataclasses.replace(one, body=None)  # no OpenAPI schema: it takes longer than a test
    for one in ENDPOINTS
    if one.handler
    in (
        chat_completions,
        completions,
        responses,
        input_tokens,
        messages,
        count_tokens,
        tokenize,
    )
]
Script = Callable[[Generate], Iterable[Event]]

TOOLS_TEMPLATE = (
    "{% for tool in tools or [] %}<tool>{{ tool.function | tojson }}</tool>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    "assistant: {% if enable_thinking is not false %}<think>\n{% endif %}"
)


class Engine:
    """Takes commands where the engine process would, and plays the script for each request."""

    def __init__(self, engine: AsyncEngine, script: Script) -> None:
        self._engine = engine
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Generate] = []
        self.aborts: list[Abort] = []

    def send(self, command: Command) -> None:
        if isinstance(command, Abort):
            self.aborts.append(command)
        elif isinstance(command, Generate):
            self.requests.append(command)
            task = asyncio.get_running_loop().create_task(self._play(command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _play(self, request: Generate) -> None:
        self._engine.dispatch(Accepted(request.request_id))
        for event in self._script(request):
            for _ in range(4):  # let the handler take one before the next
                await asyncio.sleep(0)
            self._engine.dispatch(event)


class App:
    """A running application: the official client, the plain one, and what the engine was asked."""

    def __init__(
        self, service: Service, engine: Engine, http: httpx2.AsyncClient, asgi: Edge
    ) -> None:
        self.asgi = asgi
        self.service = service
        self.engine = engine
        self.http = http
        self.client = openai.AsyncOpenAI(
            base_url="http://127.0.0.1/v1", api_key="none", http_client=http, max_retries=0
        )

    @property
    def prompt(self) -> str:
        """The text of the last prompt that the engine got."""
        ids = self.engine.requests[-1].prompt_token_ids
        return self.service.tokenizer.decode(ids, skip_special_tokens=False)

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        return await self.http.post(f"http://127.0.0.1{path}", json=body, headers=headers)


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    script: Script,
    *,
    template: str | None = None,
    endpoints: Sequence[Endpoint] = GENERATING,
    info: Mapping[str, Any] | None = None,
    spans: SpanSink | None = None,
    **settings: Any,
) -> AsyncIterator[App]:
    """The application; `settings` are fields of `ServiceOptions`, `info` some of `ModelInfo`."""
    engine = AsyncEngine()
    options = ServiceOptions(names=("stub",), **settings)
    service = Service(engine, ServerMetrics(), options, spans=spans)
    model = ModelInfo(
        served_model_name="stub",
        path=str(write_model_folder(folder, *([template] if template else []))),
        architecture="Stub",
        parameters=1,
        weight_bytes=1,
        max_model_len=2048,
        vocab_size=byte_level().get_vocab_size(),
        eos_token_ids=(0,),
        kv_pages=100,
        page_size=16,
        device="cpu",
        dtype="float32",
    )
    model = msgspec.structs.replace(model, **(info or {}))
    await service.load(model)
    scripted = Engine(engine, script)
    engine.attach(scripted, model)
    asgi = create_app(service, endpoints=endpoints)
    transport = httpx2.ASGITransport(app=asgi)
    async with httpx2.AsyncClient(transport=transport) as http:
        yield App(service, scripted, http, asgi)


def ids_of(text: str) -> list[int]:
    return byte_level().encode(text, add_special_tokens=False).ids


def says(*texts: str, finish: Any = "stop", **last: Any) -> Script:
    """Output i says text i, token by token and in turns; each ends with `finish`. One that is
    resumed goes on after what it has said.
    """

    def script(request: Generate) -> Iterable[Event]:
        spoken = [ids_of(text) for text in texts]
        for step in range(len(request.resumed_token_ids), max(map(len, spoken))):
            for index, ids in enumerate(spoken):
                if step < len(ids):
                    yield _tokens(request, ids[step], index, first=step == 0)
        for index in range(len(texts)):
            yield Tokens(request.request_id, (), finish, index=index, **last)

    return script


def _tokens(request: Generate, token_id: int, index: int, *, first: bool) -> Tokens:
    count, prompt = request.sampling.logprobs, request.sampling.prompt_logprobs
    entries = () if count is None else (logprob_of(token_id, count),)
    of_prompt = None
    if prompt is not None and first:
        of_prompt = tuple(logprob_of(i, prompt) for i in request.prompt_token_ids[1:])
    return Tokens(
        request.request_id, (token_id,), index=index, logprobs=entries, prompt_logprobs=of_prompt
    )


def logprob_of(token_id: int, count: int) -> TokenLogprobs:
    """The token is the likeliest; `count - 1` others follow it."""
    others: Sequence[int] = [i for i in range(40, 60) if i != token_id]
    top = [token_id, *others][:count]
    return TokenLogprobs(token_id, -0.5, 1, tuple(top), tuple(-0.5 - i for i in range(len(top))))
