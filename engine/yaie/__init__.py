"""yaie: LLM inference. `LLM` and `SamplingParams` are imported on first use."""

from typing import TYPE_CHECKING, Any

from yaie_api import __version__

if TYPE_CHECKING:
    from yaie.core.request import SamplingParams
    from yaie.llm import LLM

__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from yaie.llm import LLM

        return LLM
    if name == "SamplingParams":
        from yaie.core.request import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'yaie' has no attribute {name!r}")
