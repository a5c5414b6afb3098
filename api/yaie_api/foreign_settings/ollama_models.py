"""The models of Ollama's library that most people have, by their names on the hub. Pure."""

import re
from typing import Final, NamedTuple


class _Family(NamedTuple):
    """`name`: on the hub, with {} for the size; `sizes`: those of the hub, the default first."""

    name: str
    sizes: tuple[str, ...]


_FAMILIES: Final = {
    "gemma2": _Family("google/gemma-2-{}-it", ("9b", "2b", "27b")),
    "gemma3": _Family("google/gemma-3-{}-it", ("4b", "1b", "12b", "27b")),
    "llama3": _Family("meta-llama/Meta-Llama-3-{}-Instruct", ("8B", "70B")),
    "llama3.1": _Family("meta-llama/Llama-3.1-{}-Instruct", ("8B", "70B", "405B")),
    "llama3.2": _Family("meta-llama/Llama-3.2-{}-Instruct", ("3B", "1B")),
    "llama3.3": _Family("meta-llama/Llama-3.3-{}-Instruct", ("70B",)),
    "mistral": _Family("mistralai/Mistral-{}-Instruct-v0.3", ("7B",)),
    "mixtral": _Family("mistralai/Mixtral-{}-Instruct-v0.1", ("8x7B",)),
    "qwen2.5": _Family(
        "Qwen/Qwen2.5-{}-Instruct", ("7B", "0.5B", "1.5B", "3B", "14B", "32B", "72B")
    ),
    "qwen2.5-coder": _Family(
        "Qwen/Qwen2.5-Coder-{}-Instruct", ("7B", "0.5B", "1.5B", "3B", "14B", "32B")
    ),
    "qwen3": _Family("Qwen/Qwen3-{}", ("8B", "0.6B", "1.7B", "4B", "14B", "30B-A3B", "32B")),
    "smollm2": _Family("HuggingFaceTB/SmolLM2-{}-Instruct", ("1.7B", "135M", "360M")),
    "tinyllama": _Family("TinyLlama/TinyLlama-{}-Chat-v1.0", ("1.1B",)),
}
_SIZE: Final = re.compile(r"(\d+x)?\d+(\.\d+)?[bm](-a\d+b)?(?![a-z0-9])")


def hub_name(model: str) -> str | None:
    """The name on the hub of what Ollama calls `model`, such as `qwen3:0.6b`; None: not known."""
    name, _, tag = model.lower().partition(":")
    family = _FAMILIES.get(name.removeprefix("library/"))
    if family is None:
        return None
    size = _SIZE.match(tag)
    if size is None:  # none, latest, or a variant without a size
        return family.name.format(family.sizes[0])
    known = {one.lower(): one for one in family.sizes}
    return family.name.format(known[size[0]]) if size[0] in known else None
