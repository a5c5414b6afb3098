"""Builds an engine from its configuration: folder, model, weights, KV cache, runner, scheduler.

The only place that knows all parts. `LLM` and the engine process both start here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from yaie.config import EngineConfig, ModelInfo
from yaie.core.scheduler import Scheduler
from yaie.layers.options import TensorOptions
from yaie.models import config as model_config
from yaie.models import registry, source, weights
from yaie.models.config import ModelConfig
from yaie.models.llama import Llama
from yaie.runtime.budget import StepBudget
from yaie.runtime.host import usable_cores
from yaie.runtime.kv_tensors import KVTensors, kv_spec
from yaie.runtime.loop import EngineLoop, Port
from yaie.runtime.memory import num_host_pages, num_pages
from yaie.runtime.runner import ModelRunner, Ticket
from yaie_api.errors import InvalidRequestError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
STEP_TOKENS = {"cpu": 512, "cuda": 8192}
"""Default upper bound of the step budget."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The pieces of a loaded engine. `config` is complete: no field is None that has a default."""

    config: EngineConfig
    info: ModelInfo
    scheduler: Scheduler
    runner: ModelRunner

    def loop(self, port: Port) -> EngineLoop[Ticket]:
        """Return a loop that serves what arrives at `port`."""
        budget = StepBudget(
            self.config.max_num_batched_tokens or STEP_TOKENS["cpu"],
            self.config.step_time_target_s,
        )
        return EngineLoop(self.scheduler, self.runner, port, budget=budget)


def create(config: EngineConfig) -> Engine:
    """Load the model and build the engine.

    Raises:
        InvalidRequestError: no such model, one we refuse, or settings that do not fit it.

    """
    folder = source.resolve(
        config.model, config.revision, with_weights=config.load_format != "dummy"
    )
    raw = source.read_config(folder)
    shape = model_config.parse(raw)
    registry.check(shape.architecture)
    options = _options(config, shape)
    config = _resolved(config, shape, options.device)
    _set_threads(config, options.device)
    model = _load(config, shape, options, folder)
    spec = kv_spec(model.caches, config.page_size, options.dtype)
    max_model_len = config.max_model_len or shape.max_positions
    step_tokens = config.max_num_batched_tokens or STEP_TOKENS[options.device.type]
    pages = num_pages(config, model, spec, max_model_len=max_model_len, step_tokens=step_tokens)
    eos = source.eos_token_ids(folder, raw)
    scheduler = Scheduler(
        spec,
        pages,
        max_num_seqs=config.max_num_seqs,
        max_model_len=max_model_len,
        vocab_size=shape.vocab_size,
        max_num_queued_reqs=config.max_num_queued_reqs,
        eos_token_ids=eos,
        enable_prefix_caching=config.enable_prefix_caching,
        seed=config.seed,
    )
    runner = ModelRunner(
        model,
        KVTensors(
            model.caches,
            pages,
            config.page_size,
            options,
            host_pages=num_host_pages(config, spec),
        ),
        max_num_seqs=config.max_num_seqs,
        max_model_len=scheduler.max_model_len,
        capture_graphs=not config.enforce_eager,
    )
    info = _info(
        config,
        model,
        path=str(folder),
        kv_pages=pages,
        eos_token_ids=eos,
        max_model_len=scheduler.max_model_len,
    )
    return Engine(config, info, scheduler, runner)


def _options(config: EngineConfig, shape: ModelConfig) -> TensorOptions:
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in STEP_TOKENS:
        raise _bad("device", config.device, ["auto", *STEP_TOKENS])
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidRequestError("device is cuda, but there is no CUDA device.", param="device")
    dtype = config.dtype
    if dtype == "auto":
        dtype = (shape.dtype or "bfloat16") if device == "cuda" else "float32"
    if dtype not in DTYPES:
        raise _bad("dtype", dtype, ["auto", *DTYPES])
    return TensorOptions(torch.device(device), DTYPES[dtype])


def _resolved(config: EngineConfig, shape: ModelConfig, device: torch.device) -> EngineConfig:
    """Fill in what depends on the device; check what depends on the model."""
    for name in ("max_num_seqs", "page_size", "max_num_queued_reqs"):
        if getattr(config, name) < 1:
            raise InvalidRequestError(f"{name} must be at least 1.", param=name)
    if config.load_format not in {"auto", "dummy"}:
        raise _bad("load_format", config.load_format, ["auto", "dummy"])
    if not 0.0 < config.gpu_memory_utilization <= 1.0:
        raise InvalidRequestError(
            "gpu_memory_utilization must be in (0, 1].", param="gpu_memory_utilization"
        )
    for name in ("max_model_len", "max_num_batched_tokens", "kv_cache_tokens", "cpu_threads"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InvalidRequestError(f"{name} must be at least 1.", param=name)
    if config.max_model_len is not None and config.max_model_len > shape.max_positions:
        raise InvalidRequestError(
            f"max_model_len is {config.max_model_len}; the model has {shape.max_positions} "
            "positions.",
            param="max_model_len",
        )
    return msgspec.structs.replace(
        config,
        device=device.type,
        served_model_name=config.served_model_name or source.default_served_name(config.model),
        max_num_batched_tokens=config.max_num_batched_tokens or STEP_TOKENS[device.type],
    )


def _set_threads(config: EngineConfig, device: torch.device) -> None:
    """One core stays free for the HTTP process (or for Python beside the GPU)."""
    if device.type == "cpu":
        torch.set_num_threads(config.cpu_threads or max(1, usable_cores() - 1))


@torch.inference_mode()
def _load(config: EngineConfig, shape: ModelConfig, options: TensorOptions, folder: Path) -> Llama:
    max_positions = config.max_model_len or shape.max_positions
    model = registry.model_class(shape.architecture)(shape, options, max_positions)
    if config.load_format == "dummy":
        weights.fill_dummy(model, config.seed or 0)
    else:
        weights.load(model, folder)
    return model


def _info(config: EngineConfig, model: Llama, **known: Any) -> ModelInfo:
    parameters, weight_bytes = weights.count(model)
    return ModelInfo(
        served_model_name=config.served_model_name or config.model,
        architecture=model.config.architecture,
        parameters=parameters,
        weight_bytes=weight_bytes,
        vocab_size=model.config.vocab_size,
        page_size=config.page_size,
        device=model.options.device.type,
        dtype=str(model.options.dtype).removeprefix("torch."),
        **known,
    )


def _bad(name: str, value: Any, allowed: list[str]) -> InvalidRequestError:
    return InvalidRequestError(f"{name} is {value!r}; use one of {', '.join(allowed)}.", param=name)
