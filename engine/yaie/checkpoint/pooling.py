"""Reads how a sentence-transformers checkpoint pools hidden states to an embedding.

`modules.json` lists the modules after the decoder, and `1_Pooling/config.json` names the pooling.
Unsupported modules and poolings are refused: the embeddings would be wrong, but look plausible.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from yaie.checkpoint.source import read_json, read_json_list
from yaie_api.errors import InvalidRequestError

MODULES: Final = "modules.json"
POOLING: Final = "1_Pooling/config.json"
_FOLLOWED: Final = frozenset({"Transformer", "Pooling", "Normalize"})
_KNOWN: Final = {"lasttoken": "last", "mean": "mean", "mean_tokens": "mean"}
_PREFIX: Final = "pooling_mode_"
_INSTEAD: Final = "Set pooling to last or mean, if the model was trained with that alone."


def wanted(folder: Path) -> str:
    """Return "mean" or "last"; "last" if the checkpoint does not specify it.

    Raises:
        InvalidRequestError: the checkpoint specifies an unsupported module or pooling.

    """
    _check_modules(folder / MODULES)
    path = folder / POOLING
    modes = _modes(read_json(path)) if path.is_file() else ()
    found = {_KNOWN.get(mode, mode) for mode in modes} or {"last"}
    if not found < {"last", "mean"}:
        raise _refused(f"makes embeddings by pooling {', '.join(sorted(found))}")
    return found.pop()


def _modes(config: Mapping[str, Any]) -> list[str]:
    """The enabled modes: newer files name them, older ones have a flag for each mode."""
    named = config.get("pooling_mode")
    if named is not None:
        return [str(mode) for mode in (named if isinstance(named, list) else [named])]
    return [key.removeprefix(_PREFIX) for key in config if key.startswith(_PREFIX) and config[key]]


def _check_modules(path: Path) -> None:
    for module in read_json_list(path) if path.is_file() else ():
        kind = str(module.get("type")) if isinstance(module, dict) else "?"
        name = kind.rpartition(".")[2]
        if name not in _FOLLOWED:
            raise _refused(f"puts its embeddings through a further module, {name}")


def _refused(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The checkpoint {what}, which is not supported. {_INSTEAD}", param="pooling"
    )
