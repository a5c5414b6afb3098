"""What every endpoint needs: the engine, the tokenizer, the model's names, the metrics."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from yaie.config import ModelInfo
from yaie.ipc.channel import Located
from yaie.server.answers.response_store import ResponseStore, Stored
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.metrics import ServerMetrics
from yaie.server.options import ServiceOptions
from yaie.server.params import generation_defaults
from yaie.server.peers import AskResponse, Forget, Peers
from yaie.text import reasoning, tools
from yaie.text.prompt.tokenizer import Tokenizer
from yaie.text.reasoning import ReasoningFormat
from yaie.text.tools import ToolFormat
from yaie_api.errors import NotFoundError, UnavailableError
from yaie_api.logs import fields
from yaie_api.tracing.spans import SpanSink

log = logging.getLogger(__name__)

T = TypeVar("T")
IN_THREAD_CHARACTERS: Final = 16_384
"""Longer texts are tokenized in a thread. This many take about a millisecond."""


@dataclass
class Service:
    """The state of an HTTP process. `names`: the model names that clients may use. `spans`: where
    those of requests go; None: no traces.
    """

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
    spans: SpanSink | None = None
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.names = self.options.names

    def close(self) -> None:
        """Send the last spans, when all requests have ended."""
        if self.spans is not None:
            self.spans.close()

    async def load_tokenizer(self, found: Located) -> None:
        """Read the tokenizer and the folder's defaults; later calls wait for the first.

        Raises:
            InvalidRequestError: the tokenizer or the chat template cannot be read.

        """
        async with self._loading:
            if self.tokenizer_or_none is not None:
                return
            options = self.options
            tokenizer = await asyncio.to_thread(
                Tokenizer.load, Path(found.tokenizer_path), options.chat_template
            )
            source = tokenizer.template_source
            self.tool_format = tools.format_for(source, options.tool_call_parser)
            self.reasoning_format = reasoning.format_for(source, options.reasoning_parser)
            if options.use_generation_config:
                self.defaults = generation_defaults(Path(found.path))
            self.tokenizer_or_none = tokenizer

    async def load(self, info: ModelInfo) -> None:
        """Take the name of the model that is loaded, and wait for its tokenizer.

        Raises:
            InvalidRequestError: the tokenizer or the chat template cannot be read.

        """
        await self.load_tokenizer(Located(info.path, info.tokenizer_path or info.path))
        self.names = self.names or (info.served_model_name,)
        if "generate" in info.tasks and self.tokenizer.template is None:
            hint = "give one with --chat-template FILE; completions need none"
            log.warning("no chat template: chats are refused", extra=fields(hint=hint))

    @property
    def info(self) -> ModelInfo:
        """What the engine process has said about the model.

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
        """Return the model name to answer with. `name` None: the model that is served.

        Raises:
            NotFoundError: this server has no model of that name.
            UnavailableError: the model is not loaded yet, so its name is not known.

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

    async def tokenize(self, characters: int, work: Callable[[], T]) -> T:
        """Run a tokenizer call, in a thread when its text is long."""
        if characters < IN_THREAD_CHARACTERS:
            return work()
        return await asyncio.to_thread(work)

    async def stored_response(self, tenant: str, response_id: str) -> Stored | None:
        """Find a response that this HTTP process or another one stores.

        Raises:
            UnavailableError: another HTTP process does not answer.

        """
        found = self.responses.get(tenant, response_id)
        if found is not None:
            return found
        others = await self.peers.ask(AskResponse(tenant, response_id), Stored | None)
        return next((one for one in others if one is not None), None)

    async def forget_response(self, tenant: str, response_id: str) -> None:
        """Delete a stored response from the HTTP process that has it."""
        if not self.responses.delete(tenant, response_id):
            await self.peers.ask(Forget(tenant, response_id), bool)


def _short(name: str | None) -> str:
    shown = (name or "")[:64]
    return repr(shown)
