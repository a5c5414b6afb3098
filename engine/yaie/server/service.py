"""What every endpoint needs, in one object: the engine, the tokenizer, names, measurements.

`start` is the way from a checked prompt to an accepted `Answer`.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from yaie.config import ModelInfo
from yaie.core.messages import Generate
from yaie.core.request import SamplingParams
from yaie.server.answer import Answer
from yaie.server.client import RESTART_RETRY_AFTER_S, AsyncEngine, EngineState
from yaie.server.metrics import ServerMetrics
from yaie.server.output import Output
from yaie.server.params import generation_defaults
from yaie.server.tokenizer import Tokenizer
from yaie.text import TextStream
from yaie_api.errors import NotFoundError, UnavailableError
from yaie_api.logs import fields, request_id

log = logging.getLogger(__name__)
prompt_log = logging.getLogger("yaie.prompts")

T = TypeVar("T")
IN_THREAD_CHARACTERS: Final = 16_384
"""Longer texts are tokenized beside the event loop: about a millisecond for this many."""


@dataclass
class Service:
    """State of the HTTP process. `names` are the model names that clients may use; `settings` is
    what the admin port tells of the configuration. The other fields are those of `ServeOptions`.
    """

    engine: AsyncEngine
    metrics: ServerMetrics
    names: tuple[str, ...]
    use_generation_config: bool = True
    log_prompts: bool = False
    chat_template: Path | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    sse_keep_alive_s: float = 0.0
    priorities: bool = False
    tenant_header: str | None = None
    tenants_by_key: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    draining: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    defaults: dict[str, Any] = field(default_factory=dict)
    tokenizer_or_none: Tokenizer | None = None

    async def load(self, info: ModelInfo) -> None:
        """Called when an engine process is ready: read the tokenizer once."""
        if self.tokenizer_or_none is None:
            folder = Path(info.path)
            self.tokenizer_or_none = await asyncio.to_thread(Tokenizer.load, folder)
            self.defaults = generation_defaults(folder) if self.use_generation_config else {}
        self.names = self.names or (info.served_model_name,)

    @property
    def info(self) -> ModelInfo:
        """Raises UnavailableError until the model is loaded."""
        if self.engine.info is None or self.engine.state is EngineState.FAILED:
            raise UnavailableError(
                f"The model is not loaded: {self.engine.state}.",
                retry_after_s=RESTART_RETRY_AFTER_S,
            )
        return self.engine.info

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises UnavailableError until the model is loaded."""
        if self.tokenizer_or_none is None:
            raise UnavailableError(
                f"The model is not loaded: {self.engine.state}.",
                retry_after_s=RESTART_RETRY_AFTER_S,
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
            f"The model {_short(name)} does not exist here.", param="model", code="model_not_found"
        )

    def refuse_when_draining(self) -> None:
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
        *,
        started_s: float,
        salt: str | None,
    ) -> Answer:
        """Submit and return the answer once the engine has accepted it."""
        if self.log_prompts:
            text = self.tokenizer.decode(prompt_ids, skip_special_tokens=False)
            prompt_log.info("prompt", extra=fields(text=text))
        request = Generate(
            request_id=generation_id(),
            prompt_token_ids=tuple(prompt_ids),
            sampling=sampling,
            salt=salt or "",
        )
        return Answer(
            await self.engine.submit(request),
            [self._output(sampling) for _ in range(sampling.n)],
            prompt_token_ids=request.prompt_token_ids,
            metrics=self.metrics,
            started_s=started_s,
            record=_log_output if self.log_prompts else None,
        )

    def _output(self, sampling: SamplingParams) -> Output:
        return Output(
            TextStream(self.tokenizer, sampling),
            stop_token_ids=sampling.stop_token_ids,
            keep_text=self.log_prompts,
        )

    def count_unknown(self, extra: dict[str, Any] | None) -> None:
        if extra:
            self.metrics.unknown_fields(len(extra))
            log.debug("unknown fields", extra=fields(count=len(extra)))


def generation_id() -> str:
    """Unique, and begins with the HTTP request's id, so that the engine's records tell it too."""
    return f"{request_id.get()}-{uuid.uuid4().hex[:12]}"


def _log_output(text: str) -> None:
    prompt_log.info("output", extra=fields(text=text))


def _short(name: str | None) -> str:
    shown = (name or "")[:64]
    return repr(shown)
