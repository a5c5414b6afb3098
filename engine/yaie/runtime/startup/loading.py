"""Selects the implementation of a model and loads the model.

A native model, if there is one for the config.json; otherwise the model of transformers, with this
engine's pages or with its own cache, whichever passes a check at load. `--model-impl` overrides
this choice.
"""

import logging
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import torch

from yaie.checkpoint import remote_code, weights
from yaie.config import Task
from yaie.layers.options import TensorOptions
from yaie.model_config.decoder_config import ModelConfig, with_mla_form
from yaie.models import registry
from yaie.models.model import DecoderModel
from yaie_api.engine_config import EngineConfig
from yaie_api.logs import fields

log = logging.getLogger(__name__)

TASKS: dict[str, tuple[Task, ...]] = {
    "lm": ("generate", "embed"),
    "score": ("classify",),
    "none": ("embed",),
}
"""Tasks of a native model, by its head."""


class LoadedModel(NamedTuple):
    """A model and how it must be run.

    Attributes:
        model: the model that the runner calls.
        implementation: native, paged transformers, or transformers.
        tasks: the tasks that it supports.
        alone: it runs one sequence at a time and keeps its own cache instead of using pages.
        whole: a prompt must be computed in one step.
        shape: configuration of a native model; None: it is not native.

    """

    model: DecoderModel
    implementation: str
    tasks: tuple[Task, ...]
    alone: bool = False
    whole: bool = False
    shape: ModelConfig | None = None


class LoadPlan(Protocol):
    """A model that was recognised and is not loaded yet. `shape`: that of a native model, None: it
    is not native. `dtype`: the checkpoint's, None: unknown.
    `max_positions`: default of the longest sequence, in tokens. `position_limit`: the longest
    sequence that a configuration may set.
    """

    @property
    def shape(self) -> ModelConfig | None: ...

    @property
    def dtype(self) -> str | None: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def position_limit(self) -> int: ...

    def load(self, config: EngineConfig, options: TensorOptions, folder: Path) -> LoadedModel:
        """Build the model and fill it with the weights of `folder`.

        Raises:
            InvalidRequestError: the checkpoint does not fit the model, or the model cannot run.

        """


def plan(config: EngineConfig, raw: dict[str, Any]) -> LoadPlan:
    """Recognise the model that config.json describes.

    Raises:
        InvalidRequestError: no implementation supports it; the message says why.

    """
    shape = registry.native(raw, config.model_impl)
    if remote_code.is_named(raw):
        log.warning("code in the model's folder is ignored", extra=fields(native=shape is not None))
    if shape is not None:
        return NativePlan(shape)
    return TransformersPlan(raw)


class NativePlan:
    """A model that `yaie.models` implements."""

    def __init__(self, shape: ModelConfig) -> None:
        self.dtype = shape.dtype
        self.max_positions = shape.max_positions
        self.position_limit = shape.position_limit
        self.shape = shape

    @torch.inference_mode()
    def load(self, config: EngineConfig, options: TensorOptions, folder: Path) -> LoadedModel:
        shape = with_mla_form(self.shape, config.mla_form)
        longest = config.max_model_len or shape.max_positions
        model = registry.model_class(shape.architecture)(shape, options, longest)
        if config.load_format == "dummy":
            weights.fill_dummy(model, config.seed or 0)
        else:
            weights.load(model, folder)
        log.info("model is native", extra=fields(architecture=shape.architecture))
        return LoadedModel(model, "native", TASKS[shape.head], shape=shape)


class TransformersPlan:
    """A model of transformers. Only such models import transformers."""

    shape = None

    def __init__(self, raw: dict[str, Any]) -> None:
        from yaie.models.hf import load

        self._config, self._class = load.class_of(load.config_of(raw), raw)
        self.dtype = raw.get("dtype") or raw.get("torch_dtype")
        named = load.max_positions(self._config)
        self.max_positions = named or load.DEFAULT_LENGTH
        self.position_limit = named or load.UNLIMITED

    def load(self, config: EngineConfig, options: TensorOptions, folder: Path) -> LoadedModel:
        from yaie.models.hf import load
        from yaie.models.hf.cached import CacheMode
        from yaie.models.hf.choose import choose

        source = None if config.load_format == "dummy" else folder
        model = load.model_of(self._config, self._class, options, source, config.seed or 0)
        chosen = choose(model, options, config.max_model_len or self.max_positions)
        if chosen.carry is None:
            return LoadedModel(chosen.model, "paged transformers", TASKS["lm"])
        whole = chosen.carry is not CacheMode.CHUNKS
        return LoadedModel(chosen.model, "transformers", TASKS["lm"], alone=True, whole=whole)


def limited(config: EngineConfig, loaded: LoadedModel) -> EngineConfig:
    """The configuration, limited to what the loaded model supports."""
    changes: dict[str, Any] = {}
    if loaded.alone:
        changes |= {"max_num_seqs": 1, "enable_prefix_caching": False, "swap_space_gib": 0.0}
    if loaded.whole:
        changes["max_num_batched_tokens"] = config.max_model_len
    if loaded.implementation != "native" or config.mla_form == "latent":
        changes["enforce_eager"] = True  # a graph would expand the longest context in every step
    return msgspec.structs.replace(config, **changes)
