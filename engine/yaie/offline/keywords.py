"""Keywords of `LLM(...)`: our settings with their types, and what other names become."""

import difflib
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from yaie_api import engine_config
from yaie_api.engine_config import DType
from yaie_api.errors import InvalidRequestError
from yaie_api.foreign_settings import synonyms
from yaie_api.foreign_settings.offline import OFFLINE
from yaie_api.foreign_settings.ollama import OLLAMA
from yaie_api.foreign_settings.verdict import Foreign, Mapped, Refused
from yaie_api.foreign_settings.vllm import VLLM
from yaie_api.logs import fields

log = logging.getLogger(__name__)


class EngineSettings(TypedDict, total=False):
    """The fields of `EngineConfig` but the model, for editors and type checkers.
    `docs/settings.md` describes them.
    """

    served_model_name: str | None
    revision: str | None
    device: Literal["auto", "cpu", "cuda"]
    dtype: DType
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_num_queued_reqs: int
    gpu_memory_utilization: float
    kv_cache_tokens: int | None
    page_size: int
    swap_space_gib: float
    scheduling_policy: Literal["fcfs", "priority", "longest-prefix", "fair"]
    request_timeout_s: float | None
    enable_prefix_caching: bool
    load_format: Literal["auto", "dummy"]
    model_impl: Literal["auto", "yaie", "transformers"]
    mla_form: Literal["auto", "absorbed", "latent", "naive"]
    tokenizer: str | None
    pooling: Literal["auto", "last", "mean"]
    max_logprobs: int
    max_grammars: int
    enforce_eager: bool
    seed: int | None
    step_time_target_s: float | None
    cpu_threads: int | None


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from keywords with our names, vLLM's or Ollama's. What changes nothing is left
    out and told to the log.

    Raises:
        InvalidRequestError: a setting of vLLM or Ollama has a value that cannot be had here.
        TypeError: nobody has a setting of this name.

    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        ours = _OURS.get(name)
        found |= _foreign(name, value) if ours is None else {ours: _value(ours, value)}
    return found


_OURS = {name: name for name in EngineSettings.__annotations__} | {
    flag[2:].replace("-", "_"): known.name
    for known in engine_config.settings().values()
    for flag in known.setting.flags
}
"""Our settings by every name that they have here."""
_FOREIGN: dict[str, Foreign] = {**OLLAMA, **VLLM, **OFFLINE}


def _value(name: str, given: Any) -> Any:
    """The value as ours; only suffixed counts become numbers, as all other texts are mistakes."""
    if name not in engine_config.settings():
        return given
    value = synonyms.ours(name, given)
    return int(value) if value is not given and str(value).isdecimal() else value


def _foreign(name: str, value: Any) -> dict[str, Any]:
    if name not in _FOREIGN:
        near = difflib.get_close_matches(name, [*_OURS, *_FOREIGN], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"LLM has no setting {name}{hint}")
    verdict = _FOREIGN[name].verdict(value)
    if isinstance(verdict, Refused):
        raise InvalidRequestError(f"{name}={value!r}: {_as_keywords(verdict.why)}", param=name)
    if isinstance(verdict, Mapped):
        return {verdict.ours: verdict.value}
    if value is not None:
        log.info("a setting changes nothing", extra=fields(setting=name, reason=verdict.why))
    return {}


def _as_keywords(why: str) -> str:
    """A sentence with keywords instead of flags."""
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), why)
