"""Builds transformers' own model from config.json and safetensors. transformers does not access the
folder: it receives settings and tensors that are read and checked here.
"""

import logging
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from yaie.checkpoint import weights
from yaie.checkpoint.safetensors import INTEGERS
from yaie.layers.options import TensorOptions
from yaie_api.errors import InvalidRequestError

log = logging.getLogger(__name__)

CODE_KEYS = frozenset({
    "auto_map",
    "custom_pipelines",
    "fusion_config",
    "transformers_weights",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
})  # fmt: skip
"""Settings that select code or files, some even kernels to download. They are removed."""

LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "context_length")
"""Names of the longest sequence in configurations."""
DEFAULT_LENGTH = 8192
"""Longest sequence of models without positions, such as recurrent ones."""
UNLIMITED = 2**24
BUFFERS = (
    ".rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    ".position_ids",
)
"""Suffixes of buffers that old checkpoints contain; they are computed here instead."""
OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech", "multi_modal", "vqmodel")
"""Words in the names of tensors that a text model does not use."""
MAX_LAYERS = 1024
"""Far more than any real model has; a hostile number must not make the loader build a billion."""
LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "decoder_layers")


def config_of(raw: dict[str, Any]) -> Any:
    """Return transformers' configuration object for the contents of config.json.

    Raises:
        InvalidRequestError: the model type is unknown, or its class refuses the settings.

    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
    from transformers.utils import logging as library

    library.set_verbosity_error()
    library.disable_progress_bar()
    kind = raw.get("model_type")
    if kind not in CONFIG_MAPPING_NAMES:
        raise _refused(f"model type {kind!r} is not known to the installed version")
    _check_layers(raw)
    try:
        return CONFIG_MAPPING[kind].from_dict(_settings(raw))
    except Exception as error:
        log.warning("config.json refused", exc_info=True)
        raise _refused(
            f"config.json is not valid for a model of type {kind}; the log says more"
        ) from error


def max_positions(config: Any) -> int | None:
    """The configuration's longest sequence; None if it names none."""
    text = config.get_text_config(decoder=True)
    for name in LENGTHS:
        value = getattr(text, name, None) if name in vars(text) | text.attribute_map else None
        if isinstance(value, int) and 0 < value < UNLIMITED:
            return value
    return None


def class_of(config: Any, raw: dict[str, Any]) -> tuple[Any, type[Any]]:
    """Return the configuration and class of the causal language model; if the configuration has
    several parts, those of the text part.

    Raises:
        InvalidRequestError: it is not a causal language model, or needs a missing package.

    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = raw.get("architectures") or [None]
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if config.is_encoder_decoder:
        raise _refused("it is an encoder and a decoder, not a decoder alone")
    if names[0] is None:
        names = [causal.get(config.model_type)]
    if names[0] not in causal.values():
        raise _refused(_other_kind(config.model_type, names[0]))
    try:
        found: type[Any] = getattr(import_module("transformers"), names[0])
    except ImportError as error:
        raise _refused(f"it needs a package that is not installed: {_needed(error)}") from error
    text = config.get_text_config(decoder=True)
    if isinstance(config, found.config_class) or not isinstance(text, found.config_class):
        return config, found
    return text, found


@torch.inference_mode()
def model_of(
    config: Any, kind: type[Any], options: TensorOptions, folder: Path | None, seed: int = 0
) -> Any:
    """Build the model with the weights in `folder`, or (None) with random weights.

    Raises:
        InvalidRequestError: it cannot be built, or the checkpoint's tensors do not match it.

    """
    try:
        model = _filled(config, kind, options, folder, seed)
    except InvalidRequestError:
        raise
    except ImportError as error:
        raise _refused(f"it needs a package that is not installed: {_needed(error)}") from error
    except Exception as error:
        log.warning("model cannot be built", exc_info=True)
        raise _refused("it cannot be built from its config.json; the log says more") from error
    return model.to(options.device).eval().requires_grad_(False)


def _filled(
    config: Any, kind: type[Any], options: TensorOptions, folder: Path | None, seed: int
) -> Any:
    if folder is None:
        torch.manual_seed(seed)
        return kind._from_config(config, dtype=options.dtype)  # noqa: SLF001 - what AutoModel calls
    model, found = kind.from_pretrained(
        None,
        config=config,
        state_dict=_tensors(folder),
        dtype=options.dtype,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    _check_found(found)
    return model


def _check_found(found: dict[str, Any]) -> None:
    """Refuse a checkpoint whose tensors do not match those of the model."""
    weights.report_missing(found["missing_keys"])
    for name, stored, asked in sorted(found["mismatched_keys"]):
        raise weights.misshapen(name, stored, asked)
    weights.report_left_over([name for name in found["unexpected_keys"] if not _is_no_weight(name)])


def _is_no_weight(name: str) -> bool:
    """Whether a tensor is a computed buffer, or belongs to another modality."""
    return name.endswith(BUFFERS) or any(word in name for word in OTHER_MODALITIES)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = weights.open_files(folder, INTEGERS)
    return {name: file.tensor(name) for file in files for name in file.entries}


def _check_layers(table: dict[str, Any]) -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            _check_layers(value)
        elif name in LAYERS and not (isinstance(value, int) and value <= MAX_LAYERS):
            raise InvalidRequestError(f"config.json: {name} = {value!r:.80}.", param="model")


def _settings(value: Any) -> Any:
    """A copy without CODE_KEYS at any depth; `{"__float__": text}` becomes the number."""
    if isinstance(value, dict) and value.keys() == {"__float__"}:
        return float(value["__float__"])
    if isinstance(value, dict):
        return {key: _settings(item) for key, item in value.items() if key not in CODE_KEYS}
    return [_settings(item) for item in value] if isinstance(value, list) else value


def _other_kind(model_type: str, name: str | None) -> str:
    from transformers.models.auto import modeling_auto as auto

    kinds = {
        "it is an encoder and a decoder, not a decoder alone": (
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        ),
        "it needs images or other input beside text": (
            auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        ),
    }
    reasons = (
        reason for reason, table in kinds.items() if model_type in table or name in table.values()
    )
    return next(reasons, f"{name or model_type} is not a causal language model")


def _needed(error: ImportError) -> str:
    """The name of the missing module, or the beginning of the error message."""
    named = re.search(r"requires the (\S+) library", str(error))
    return error.name or (named[1] if named else str(error).strip().splitlines()[0][:120])


def _refused(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"This model cannot be served: {reason}.", param="model")
