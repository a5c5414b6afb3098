"""Values that vLLM spells otherwise, of settings that both have. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from yaie_api.engine_config import settings

_SYNONYMS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "dtype": {
        "half": "float16",
        "float": "float32",
        "torch.float16": "float16",
        "torch.bfloat16": "bfloat16",
        "torch.float32": "float32",
    },
    "load_format": {"safetensors": "auto", "hf": "auto"},
    "model_impl": {"vllm": "yaie"},
    "max_model_len": {"auto": None, "-1": None},
}
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([kmg])|(\d+)([KMG])")
_POWERS: Final = {"k": 1, "m": 2, "g": 3}


def ours(name: str, given: Any) -> Any:
    """The value of our setting `name` that vLLM writes as `given`; `given` itself for all others.

    Token counts may have a suffix: `8k` is 8,000 and `8K` is 8,192.
    """
    known = _SYNONYMS.get(name, {})
    if (text := str(given)) in known:
        return known[text]
    if isinstance(given, str) and settings()[name].setting.unit == "TOKENS":
        return _count(given)
    return given


def _count(text: str) -> str:
    """Decimal digits for a number with a suffix."""
    found = _COUNT.fullmatch(text)
    if found is None:
        return text
    decimal, small, binary, large = found.groups()
    if small:
        return f"{float(decimal) * 1000 ** _POWERS[small]:.0f}"
    return str(int(binary) * 1024 ** _POWERS[large.lower()])
