"""What every endpoint needs, in one object: the engine, the tokenizer, names, measurements.

`start` is the way from a checked prompt to an accepted `Answer`.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from yaie.config import ModelInfo
from yaie.core.messages import Generate
from yaie.core.request import SamplingParams
from yaie.server.answers.answer import Answer
from yaie.server.answers.output import Output
from yaie.server.answers.response_store import ResponseStore, Stored
from yaie.server.caller import Caller, caller_of
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.metrics import ServerMetrics
from yaie.server.options import ServiceOptions
from yaie.server.params import generation_defaults
from yaie.server.peers import AskResponse, Forget, Peers
from yaie.text import reasoning, tools
from yaie.text.detokenizer import TextStream
from yaie.text.parts import OutputParser
from yaie.text.prompt.tokenizer import Tokenizer
from yaie.text.reasoning import ReasoningFormat
from yaie.text.tools import ToolFormat
from yaie_api.errors import InvalidRequestError, NotFoundError, UnavailableError
from yaie_api.http.openai import GenerationRequest
from yaie_api.logs import fields, request_id

log = logging.getLogger(__name__)
prompt_log = logging.getLogger("yaie.prompts")

T = TypeVar("T")
IN_THREAD_CHARACTERS: Final = 16_384
"""Longer texts are tokenized beside the event loop: about a millisecond for this many."""


@dataclass
class Service:
    """State of the HTTP process. `names` are the model names that clients may use."""

    engine: AsyncEngine
    metrics: ServerMetrics
    options: ServiceOptions
    names: tuple[str, ...] = field(init=False)
    draining: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    defaults: dict[str, Any] = field(default_factory=dict)
    tokenizer_or_none: Tokenizer | None = None
    tool_format: ToolFormat = field(default_factory=lambda: tools.format_for(None))
    reasoning_format: ReasoningFormat | None = None
    responses: ResponseStore = field(default_factory=ResponseStore)
    peers: Peers = field(default_factory=Peers)

    def __post_init__(self) -> None:
        self.names = self.options.names

    async def load(self, info: ModelInfo) -> None:
        """Called when an engine process is ready: read the tokenizer once."""
        options = self.options
        if self.tokenizer_or_none is None:
            folder = Path(info.path)
            tokenizer = await asyncio.to_thread(
                Tokenizer.load, Path(info.tokenizer_path or folder), options.chat_template
            )
            source = tokenizer.template_source
            self.tool_format = tools.format_for(source, options.tool_call_parser)
            self.reasoning_format = reasoning.format_for(source, options.reasoning_parser)
            self.defaults = generation_defaults(folder) if options.use_generation_config else {}
            self.tokenizer_or_none = tokenizer
        self.names = self.names or (info.served_model_name,)

    @property
    def info(self) -> ModelInfo:
        """What the engine tells about the model.

        Raises:
            UnavailableError: the model is not loaded yet, or the engine failed.

        """
        if self.engine.info is None or self.engine.state is EngineState.FAILED:
            raise UnavailableError(
                f"The model is not loaded: {self.engine.state}.",
                retry_after_s=self.engine.retry_after_s,
            )
        return self.engine.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            UnavailableError: the model is not loaded yet.

        """
        if self.tokenizer_or_none is None:
            raise UnavailableError(
                f"The model is not loaded: {self.engine.state}.",
                retry_after_s=self.engine.retry_after_s,
            )
        return self.tokenizer_or_none

    def check_model(self, name: str | None) -> str:
        """The name to answer with. None means the model that is served.

        Raises:
            NotFoundError: no such model here.

        """
        if name is None and self.names:
            return self.names[0]
        if name in self.names:
            return name
        if not self.names:  # not loaded, and no name was given on the command line
            _ = self.info
        raise NotFoundError(
            f"The model {_short(name)} does not exist here; served is {', '.join(self.names)}.",
            param="model",
            code="model_not_found",
        )

    def refuse_when_draining(self) -> None:
        """Refuse a request while the server shuts down.

        Raises:
            UnavailableError: the server shuts down.

        """
        if self.draining:
            raise UnavailableError(
                "The server is shutting down.", code="draining", retry_after_s=1.0
            )

    async def tokenize(self, characters: int, work: Callable[[], T]) -> T:
        """Run a tokenizer call, in a thread when its text is long."""
        if characters < IN_THREAD_CHARACTERS:
            return work()
        return await asyncio.to_thread(work)

    async def start(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        body: GenerationRequest,
        caller: Caller,
        *,
        parser: Callable[[], OutputParser] | None = None,
    ) -> Answer:
        """Submit and return the answer once the engine has accepted it.

        `parser` makes the parser of each output; None: outputs are plain text.

        Raises:
            InvalidRequestError: `body` has a priority, and this server does not schedule by
                priority.

        """
        if body.priority and not self.options.priorities:
            raise InvalidRequestError(
                "priority must be 0: this server does not schedule by priority.", param="priority"
            )
        if self.options.log_prompts:
            text = self.tokenizer.decode(prompt_ids, skip_special_tokens=False)
            prompt_log.info("prompt", extra=fields(text=text))
        request = Generate(
            request_id=generation_id(),
            prompt_token_ids=tuple(prompt_ids),
            sampling=sampling,
            priority=body.priority,
            salt=caller.salt(body.cache_salt),
            tenant=caller.tenant,
            timeout_s=caller.timeout_s,
        )
        return Answer(
            await self.engine.submit(request),
            [self._output(sampling, body, parser) for _ in range(sampling.n)],
            prompt_token_ids=request.prompt_token_ids,
            metrics=self.metrics,
            started_s=caller.started_s,
            record=_log_output if self.options.log_prompts else None,
        )

    def _output(
        self,
        sampling: SamplingParams,
        body: GenerationRequest,
        parser: Callable[[], OutputParser] | None,
    ) -> Output:
        made = None if parser is None else parser()
        shown = frozenset[str]() if made is None else made.shown_special_tokens
        return Output(
            TextStream(self.tokenizer, sampling, shown),
            made,
            stop_token_ids=sampling.stop_token_ids,
            keep_token_ids=body.return_token_ids,
            keep_text=self.options.log_prompts,
        )

    async def stored_response(self, tenant: str, response_id: str) -> Stored | None:
        """A response that this HTTP process or another one keeps.

        Raises:
            UnavailableError: another one does not answer.

        """
        found = self.responses.get(tenant, response_id)
        if found is not None:
            return found
        others = await self.peers.ask(AskResponse(tenant, response_id), Stored | None)
        return next((one for one in others if one is not None), None)

    async def forget_response(self, tenant: str, response_id: str) -> None:
        """Wherever it is kept."""
        if not self.responses.delete(tenant, response_id):
            await self.peers.ask(Forget(tenant, response_id), bool)

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who asks. To be called first in a handler: the clock starts here."""
        options = self.options
        return caller_of(
            headers, tenant_header=options.tenant_header, tenants_by_key=options.tenants_by_key
        )

    def count_unknown(self, names: Collection[str] | None) -> None:
        if names:
            self.metrics.unknown_fields(len(names))
            log.debug("unknown fields", extra=fields(count=len(names)))


def generation_id() -> str:
    """Unique, and begins with the HTTP request's id, so that the engine's records tell it too."""
    return f"{request_id.get()}-{uuid.uuid4().hex[:12]}"


def _log_output(text: str) -> None:
    prompt_log.info("output", extra=fields(text=text))


def _short(name: str | None) -> str:
    shown = (name or "")[:64]
    return repr(shown)
