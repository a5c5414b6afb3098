"""yaie: LLM inference. `LLM`, `SamplingParams` and `BeamSearchParams` are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from yaie.extras import is_foreign, missing
from yaie_api import __version__

if TYPE_CHECKING:
    from yaie.core.request import SamplingParams
    from yaie.llm import LLM
    from yaie.offline.beam_search import BeamSearchParams

__all__ = ["LLM", "BeamSearchParams", "SamplingParams", "__version__"]


_HOMES = {
    "LLM": "yaie.llm",
    "SamplingParams": "yaie.core.request",
    "BeamSearchParams": "yaie.offline.beam_search",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'yaie' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        told = missing(f"yaie.{name}", error, "engine")
        raise ModuleNotFoundError(told, name=error.name) from None
