"""yaie: LLM inference. `LLM`, `SamplingParams` and `BeamSearchParams` are imported on first use."""

from typing import TYPE_CHECKING, Any

from yaie_api import __version__

if TYPE_CHECKING:
    from yaie.core.request import SamplingParams
    from yaie.llm import LLM
    from yaie.offline.beam_search import BeamSearchParams

__all__ = ["LLM", "BeamSearchParams", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from yaie.llm import LLM

        return LLM
    if name == "SamplingParams":
        from yaie.core.request import SamplingParams

        return SamplingParams
    if name == "BeamSearchParams":
        from yaie.offline.beam_search import BeamSearchParams

        return BeamSearchParams
    raise AttributeError(f"module 'yaie' has no attribute {name!r}")
