"""Which class runs which architecture. Classes are imported when asked for: reading a config needs
no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from yaie.models.families import FAMILIES
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.models.llama import Llama


def architectures() -> tuple[str, ...]:
    """Names that can be served, as they stand in config.json."""
    return tuple(FAMILIES)


def check(architecture: str) -> None:
    """Raise InvalidRequestError when no model here runs `architecture`."""
    if architecture not in FAMILIES:
        raise InvalidRequestError(
            f"Architecture {architecture!r} is not supported. Supported: {', '.join(FAMILIES)}.",
            param="model",
        )


def model_class(architecture: str) -> "type[Llama]":
    """Return the class that runs `architecture`."""
    check(architecture)
    module, _, name = FAMILIES[architecture].model.partition(":")
    found: type[Llama] = getattr(import_module(module), name)
    return found
