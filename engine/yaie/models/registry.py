"""Which class runs which architecture. Classes are imported when asked for: reading a config needs
no torch.
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
    """The shape of the native model for the content of parser.json; None: transformers has to run
    it, because `model_impl` says so, or because it is "auto" and no native model does it.

    Raises:
        UnsupportedModelError: `model_impl` is "yaie", and there is no native model.
        InvalidRequestError: a value that no implementation should be handed.

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
