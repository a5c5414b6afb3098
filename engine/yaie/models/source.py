"""From a model's name to a local folder that is safe to read.

`builtin://NAME`, `file:///path` or a plain path, `hf://org/name[@revision]`. Nothing here imports
torch or transformers, and nothing from the folder is ever executed: pickled weights and `auto_map`
(code shipped with a model) are refused before anything else looks at the folder.
"""

import json
from pathlib import Path
from typing import Any

from yaie_api.errors import InvalidRequestError

BUILTIN = Path(__file__).parent / "builtin"
MAX_JSON_BYTES = 64 * 2**20
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
DOWNLOADED = ["*.safetensors", "*.json", "*.jinja", "*.model"]


def resolve(source: str, revision: str | None = None) -> Path:
    """Return the local folder of `source`, downloaded when it is `hf://`.

    Raises:
        InvalidRequestError: no such model, or an unknown kind of source.

    """
    scheme, separator, rest = source.partition("://")
    if not separator:
        return _existing(Path(source).expanduser(), source)
    if scheme == "builtin":
        return _builtin(rest)
    if scheme == "file":
        return _existing(Path(rest), source)
    if scheme == "hf":
        return _download(rest, revision)
    raise InvalidRequestError(
        f"Unknown model source {source!r}. Use builtin://NAME, hf://org/name[@revision] or a "
        "local folder.",
        param="model",
    )


def default_served_name(source: str) -> str:
    """Name that clients use when none is given: the last part of the source, without revision."""
    return source.partition("@")[0].rstrip("/").rpartition("/")[2] or source


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a checked folder.

    Raises:
        InvalidRequestError: config.json is missing or malformed, or the folder is one we refuse.

    """
    raw = read_json(folder / "config.json")
    if "auto_map" in raw:
        raise InvalidRequestError(
            "This model asks to run code from its own folder ('auto_map' in config.json), which "
            "is never done here. Remove 'auto_map' if the architecture is a supported one.",
            param="model",
        )
    return raw


def refuse_pickled_weights(folder: Path) -> None:
    """Raise InvalidRequestError when the folder has pickled weights and no safetensors."""
    if any(folder.glob("*.safetensors")):
        return
    if any(path for pattern in PICKLED for path in folder.glob(pattern)):
        raise InvalidRequestError(
            "This model has pickled weights only, which can run code when loaded. Convert them to "
            "safetensors.",
            param="model",
        )
    raise InvalidRequestError("The model's folder holds no *.safetensors weights.", param="model")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of bounded size.

    Raises:
        InvalidRequestError: missing, too large, or not a JSON object.

    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise InvalidRequestError(f"{path.name} is larger than 64 MiB.", param="model")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidRequestError(f"{path.name} cannot be read.", param="model") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path.name} is not valid JSON.", param="model") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{path.name} does not hold a JSON object.", param="model")
    return value


def eos_token_ids(folder: Path, raw: dict[str, Any]) -> tuple[int, ...]:
    """Ids that end a sequence: generation_config.json's where present, and config.json's."""
    found: set[int] = set()
    generation = folder / "generation_config.json"
    for table in (raw, read_json(generation) if generation.exists() else {}):
        value = table.get("eos_token_id")
        for token_id in value if isinstance(value, list) else [value]:
            if isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0:
                found.add(token_id)
    return tuple(sorted(found))


def _existing(path: Path, source: str) -> Path:
    if not path.is_dir():
        raise InvalidRequestError(f"There is no model folder at {source!r}.", param="model")
    return path


def _builtin(name: str) -> Path:
    names = sorted(path.parent.name for path in BUILTIN.glob("*/config.json"))
    if name not in names:
        raise InvalidRequestError(
            f"There is no built-in model {name!r}. Built in: {', '.join(names) or 'none'}.",
            param="model",
        )
    return BUILTIN / name


def _download(rest: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, pinned = rest.partition("@")
    try:
        folder = snapshot_download(
            repository, revision=pinned or revision, allow_patterns=DOWNLOADED
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise InvalidRequestError(
            f"hf://{rest} could not be downloaded ({type(error).__name__}).", param="model"
        ) from error
    return Path(folder)
