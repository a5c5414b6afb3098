"""Builds an engine from its configuration: folder, model, weights, KV cache, runner, scheduler.

The only module that knows all parts. `LLM` and the engine process both use it.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from yaie.checkpoint import pooling, source, tokenizer_files, weights
from yaie.config import ModelInfo
from yaie.core.kv_cache.spec import KVSpec
from yaie.core.scheduler.scheduler import Scheduler
from yaie.runtime.host import usable_cores
from yaie.runtime.loop.engine_loop import EngineLoop, GrammarBackend, Port
from yaie.runtime.loop.step_budget import StepBudget
from yaie.runtime.loop.step_cost import StepShape
from yaie.runtime.startup import footprint, preflight, settings
from yaie.runtime.startup.loading import LoadedModel, limited, plan
from yaie.runtime.startup.memory import memory_for, num_host_pages, num_pages
from yaie.runtime.tensors.kv_tensors import KVTensors, kv_spec
from yaie.runtime.worker.runner import ModelRunner, StepHandle
from yaie_api.engine_config import EngineConfig
from yaie_api.logs import fields
from yaie_api.resource import capacity

log = logging.getLogger(__name__)

ATTENTION_COST = 1.6
"""Time of one operation of attention, in operations of a matrix product (H200, bfloat16)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of a loaded engine. `config` is complete: every field that has a default is set.

    `context_weight`: as in `StepLimits`. `measured`: times of some steps, in seconds.
    """

    config: EngineConfig
    info: ModelInfo
    scheduler: Scheduler
    runner: ModelRunner
    context_weight: float = 0.0
    measured: tuple[tuple[StepShape, float], ...] = ()

    def loop(self, port: Port) -> EngineLoop[StepHandle]:
        """Create the loop that serves the commands of `port`."""
        decode_s = dict(self.measured).get(StepShape(settings.TARGET_ROWS))
        limits = settings.step_limits(
            self.config, context_weight=self.context_weight, decode_s=decode_s
        )
        budget = StepBudget(limits, self.measured)
        log.info("step limits", extra=fields(**asdict(limits)))
        return EngineLoop(
            self.scheduler,
            self.runner,
            port,
            budget=budget,
            grammars=self._grammars(),
            epoch=secrets.randbits(48),
        )

    def _grammars(self) -> GrammarBackend | None:
        """The compiler of structured outputs; None: the model has no tokenizer.json."""
        folder = Path(self.info.tokenizer_path)
        if not (folder / "tokenizer.json").is_file():
            return None
        from yaie.runtime.grammar.compiler import GrammarCompiler

        return GrammarCompiler(
            folder,
            self.info.vocab_size,
            self.info.eos_token_ids,
            max_workers=self.config.max_grammars,
        )


def create(
    config: EngineConfig, stage: Callable[[str], None] = lambda _: None, *, put_off: bool = False
) -> Engine:
    """Load the model, build the engine and warm it up.

    Args:
        config: what the user has set.
        stage: called with the name of each stage when it begins.
        put_off: leave the part of the warm-up that can wait to the engine loop's idle time.

    Raises:
        InvalidRequestError: the model does not exist or is refused, or a setting does not fit it.

    """
    settings.check(config)
    stage("weights")
    with_weights = config.load_format != "dummy"
    folder = source.resolve(config.model, config.revision, with_weights=with_weights)
    raw = source.read_config(folder)
    tokenizer = tokenizer_files.folder_of(folder, config.tokenizer)
    preflight.check_tokenizer(tokenizer)
    how = pooling.wanted(folder) if config.pooling == "auto" else config.pooling
    planned = plan(config, raw)
    options = settings.tensor_options(config, planned.dtype)
    preflight.check_memory(config, folder, planned.shape, memory_for(config, options))
    asked_len = config.max_model_len or 0
    config = settings.complete(
        config, planned.max_positions, options.device, position_limit=planned.position_limit
    )
    _set_threads(config, options.device)
    loaded = planned.load(config, options, folder)
    config = limited(config, loaded)
    spec = kv_spec(loaded.model.caches, config.page_size, options.dtype)
    stage("KV cache")
    pages = _pages(config, loaded, spec, asked_len)
    eos = source.eos_token_ids(folder, raw)
    scheduler = _scheduler(config, loaded, spec, pages, eos)
    runner = _runner(config, loaded, pages, scheduler.max_model_len)
    info = _info(
        config,
        loaded,
        path=str(folder),
        pooling=how,
        tokenizer_path=str(tokenizer),
        kv_pages=pages.device,
        eos_token_ids=eos,
        max_model_len=scheduler.max_model_len,
    )
    stage("kernels and graphs")
    step_tokens = config.max_num_batched_tokens or footprint.STEP_TOKENS["cpu"]
    measured = () if loaded.alone else tuple(runner.warm_up(step_tokens, put_off=put_off))
    weight = _context_weight(loaded, info)
    return Engine(config, info, scheduler, runner, weight, measured)


class _PageCounts(NamedTuple):
    """Number of pages on the device, the scratch page included, and in host memory."""

    device: int
    host: int


def _pages(config: EngineConfig, loaded: LoadedModel, spec: KVSpec, asked_len: int) -> _PageCounts:
    """Compute the numbers of pages. A model that runs alone (`LoadedModel.alone`) keeps its own
    cache: its pages hold no data and only count its tokens.
    """
    longest, step_tokens = config.max_model_len or 1, config.max_num_batched_tokens or 1
    if loaded.alone:
        return _PageCounts(1 + -(-longest // spec.page_size), 0)
    pages = num_pages(
        config,
        loaded.model,
        spec,
        max_model_len=longest,
        step_tokens=step_tokens,
        asked_len=asked_len,
    )
    return _PageCounts(pages, num_host_pages(config, spec))


def _scheduler(
    config: EngineConfig,
    loaded: LoadedModel,
    spec: KVSpec,
    pages: _PageCounts,
    eos: tuple[int, ...],
) -> Scheduler:
    return Scheduler(
        spec,
        pages.device,
        max_num_seqs=config.max_num_seqs or capacity.MAX_NUM_SEQS,
        max_model_len=config.max_model_len or 1,
        vocab_size=loaded.model.vocab_size,
        max_num_queued_reqs=config.max_num_queued_reqs,
        eos_token_ids=eos,
        enable_prefix_caching=config.enable_prefix_caching,
        share_prompts=not loaded.alone,
        seed=config.seed,
        policy=config.scheduling_policy,
        host_pages=pages.host,
        request_timeout_s=config.request_timeout_s,
        max_logprobs=config.max_logprobs,
    )


def _runner(
    config: EngineConfig, loaded: LoadedModel, pages: _PageCounts, max_model_len: int
) -> ModelRunner:
    model = loaded.model
    kv = KVTensors(
        model.caches, pages.device, config.page_size, model.options, host_pages=pages.host
    )
    return ModelRunner(
        model,
        kv,
        max_num_seqs=config.max_num_seqs or capacity.MAX_NUM_SEQS,
        max_model_len=max_model_len,
        capture_graphs=not config.enforce_eager,
        max_mixed_tokens=settings.max_mixed_tokens(weights.count(model)[0]),
    )


def _context_weight(loaded: LoadedModel, info: ModelInfo) -> float:
    """Cost of attending to one earlier position, relative to a token's matrix products. These take
    two operations per parameter, without the embedding.
    """
    shape = loaded.shape
    if shape is None:
        return 0.0
    matrices = max(info.parameters - shape.vocab_size * shape.hidden_size, 1)
    return ATTENTION_COST * shape.attention_flops / (2 * matrices)


def _set_threads(config: EngineConfig, device: torch.device) -> None:
    """On a CPU, leave one core to the HTTP process."""
    if device.type == "cpu":
        torch.set_num_threads(config.cpu_threads or max(1, usable_cores() - 1))


def _info(config: EngineConfig, loaded: LoadedModel, *, path: str, **known: Any) -> ModelInfo:
    model: Any = loaded.model
    parameters, weight_bytes = weights.count(model)
    return ModelInfo(
        served_model_name=config.served_model_name or config.model,
        path=path,
        architecture=model.architecture,
        parameters=parameters,
        weight_bytes=weight_bytes,
        vocab_size=model.vocab_size,
        page_size=config.page_size,
        device=model.options.device.type,
        dtype=str(model.options.dtype).removeprefix("torch."),
        implementation=loaded.implementation,
        tasks=loaded.tasks,
        hidden_size=model.hidden_size,
        num_labels=model.num_labels,
        max_logprobs=config.max_logprobs,
        **known,
    )
