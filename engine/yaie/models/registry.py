"""Finds the class of an architecture. Classes are imported on use, so that reading a config does
not need torch.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from yaie.model_config import parser
from yaie.model_config.families import FAMILIES
from yaie.model_config.parser import ModelConfig, UnsupportedModelError
from yaie_api.logs import fields

if TYPE_CHECKING:
    from yaie.models.llama import Llama

log = logging.getLogger(__name__)


def native(raw: dict[str, Any], model_impl: str) -> ModelConfig | None:
    """The ModelConfig of the native model for the contents of config.json.

    None: transformers must run the model, because `model_impl` is "transformers", or because it is
    "auto" and no native model supports it.

    Raises:
        UnsupportedModelError: `model_impl` is "yaie", and no native model supports it.
        InvalidRequestError: a value is invalid for any model.

    """
    if model_impl == "transformers":
        return None
    try:
        return parser.parse(raw)
    except UnsupportedModelError as error:
        if model_impl == "yaie":
            raise
        log.info("no native model", extra=fields(reason=error.message))
        return None


def model_class(architecture: str) -> "type[Llama]":
    """Return the class that runs a native `architecture`."""
    module, _, name = FAMILIES[architecture].model.partition(":")
    found: type[Llama] = getattr(import_module(module), name)
    return found
