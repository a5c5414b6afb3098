"""Resolves a model's source to a local folder that is safe to read.

Sources are `builtin://NAME`, `file:///path` or a plain path, `hf://org/name[@revision]` and
`s3://bucket/path`.
Nothing from the folder is ever executed: pickled weights, and models that only the code in their
folder can run, are refused before any other use. Torch and transformers are not imported, unless a
folder refers to code and no native model has its architecture.
"""

import errno
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from yaie.checkpoint import remote_code
from yaie.extras import is_foreign, missing
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.checkpoint.download.progress import Report

BUILTIN = Path(__file__).parent / "builtin"
MAX_JSON_BYTES = 64 * 2**20
PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
SETTINGS = (
    "*.json",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
"""Configuration, tokenizer, chat template, and the index of the weights."""
PLACE = (
    "HF_HOME names the folder that models are kept in; it needs room and permission to write. In a "
    "cluster the claim needs them: spec.cache.size."
)
DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS})
GGUF = (
    "This model is in the GGUF format, which is not supported. Name the safetensors of the model "
    "that it was made from: a folder with them, or hf://org/name."
)
REPOSITORY = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*/[A-Za-z0-9][-A-Za-z0-9._]*")
REVISION = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/]*")


def resolve(
    source: str,
    revision: str | None = None,
    *,
    with_weights: bool = True,
    check: Callable[[Path], object] = lambda _: None,
    report: "Report | None" = None,
) -> Path:
    """Return the local folder of `source`, after the download if it is `hf://` or `s3://`.

    An unsupported model is refused before its weights are downloaded, and so is one that `check`
    refuses: it is called with a folder that has the model's settings. `with_weights=False` does not
    download weights. `report` is told how far a download is; None: standard error is.

    Raises:
        InvalidRequestError: the model does not exist or is refused, or the source is malformed.
        UnavailableError: the hub or the storage cannot be reached; a retry can help.

    """
    scheme, _, rest = source.partition("://")
    if revision is not None and scheme != "hf":
        raise InvalidRequestError(
            "A revision belongs to hf:// sources only. Remove it, or name another folder.",
            param="revision",
        )
    if scheme in {"hf", "s3"}:
        place, pinned = _pinned(rest, revision) if scheme == "hf" else (rest, None)
        remote = _remote(scheme)
        return _download(
            remote, place, pinned, with_weights=with_weights, check=check, report=report
        )
    folder = _local(source)
    check(folder)
    return folder


def _local(source: str) -> Path:
    scheme, separator, rest = source.partition("://")
    if not separator:
        return _existing(Path(source).expanduser(), source)
    if scheme == "builtin":
        return _builtin(rest)
    if scheme == "file":
        return _existing(Path(rest), source)
    raise InvalidRequestError(
        f"Unknown model source {source!r}. Use builtin://NAME, hf://org/name[@revision], "
        "s3://bucket/path or a local folder.",
        param="model",
    )


def default_served_name(source: str) -> str:
    """The default name for clients: the last part of the source, without the revision."""
    return source.partition("@")[0].rstrip("/").rpartition("/")[2] or source


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model's folder.

    Raises:
        InvalidRequestError: config.json is missing or malformed, or the model is refused because it
            is quantized or needs code from its folder.

    """
    if not (folder / CONFIG).is_file():
        raise InvalidRequestError(_instead_of_config(folder), param="model")
    raw = read_json(folder / CONFIG)
    remote_code.refuse_if_needed(raw)
    _refuse_quantized(raw)
    return raw


def _instead_of_config(folder: Path) -> str:
    """The error message for a folder without config.json."""
    if (folder / "adapter_config.json").is_file():
        return "This is an adapter, not a model. Merge it into its base model and name the result."
    if any(path.suffix == ".gguf" for path in folder.iterdir()):
        return GGUF
    return f"The model's folder has no {CONFIG}. Name the folder that holds it and the weights."


def _refuse_quantized(raw: dict[str, Any]) -> None:
    text = raw.get("text_config")
    for table in (raw, text if isinstance(text, dict) else {}):
        how = table.get("quantization_config") or table.get("compression_config")
        if how is not None:
            method = how.get("quant_method") if isinstance(how, dict) else None
            raise InvalidRequestError(
                f"This checkpoint is quantized ({str(method or 'quantization_config')[:40]}), and "
                "quantized weights are not supported. Name the unquantized model.",
                param="model",
            )


def weight_paths(folder: Path) -> list[Path]:
    """Return the paths of the files of weights, all of which exist.

    Raises:
        InvalidRequestError: a file is missing, or the weights are in another format.

    """
    _refuse_other_formats(path.name for path in folder.iterdir())
    paths = [folder / name for name in weight_files(folder)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise InvalidRequestError(
            f"The model's folder lacks {missing[0]}"
            + (f" and {len(missing) - 1} more of its files" if missing[1:] else "")
            + ". Download the model again.",
            param="model",
        )
    return paths


def weight_files(folder: Path) -> list[str]:
    """Names of the files of weights: a single file, or those in the index.

    Raises:
        InvalidRequestError: the index is malformed or names a file outside the folder.

    """
    if not (folder / WEIGHTS_INDEX).exists():
        return [WEIGHTS]
    weight_map = read_json(folder / WEIGHTS_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidRequestError(f"{WEIGHTS_INDEX} has no 'weight_map'.", param="model")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InvalidRequestError(
                f"{WEIGHTS_INDEX} names a file outside the folder.", param="model"
            )
    return names


def _refuse_other_formats(names: Iterable[str]) -> None:
    kinds = {Path(name).suffix for name in names}
    if ".safetensors" in kinds:
        return
    if kinds & PICKLED:
        raise InvalidRequestError(
            "This model has pickled weights only, which can run code when loaded. Convert them to "
            "safetensors.",
            param="model",
        )
    if ".gguf" in kinds:
        raise InvalidRequestError(GGUF, param="model")
    raise InvalidRequestError("The model's folder holds no *.safetensors weights.", param="model")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of bounded size.

    Raises:
        InvalidRequestError: the file is missing, too large, or not a JSON object.

    """
    value = _read(path)
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{path.name} does not hold a JSON object.", param="model")
    return value


def read_json_list(path: Path) -> list[Any]:
    """Read a JSON list of bounded size.

    Raises:
        InvalidRequestError: the file is missing, too large, or not a JSON list.

    """
    value = _read(path)
    if not isinstance(value, list):
        raise InvalidRequestError(f"{path.name} does not hold a JSON list.", param="model")
    return value


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise InvalidRequestError(f"{path.name} is larger than 64 MiB.", param="model")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidRequestError(f"{path.name} cannot be read.", param="model") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path.name} is not valid JSON.", param="model") from error


def eos_token_ids(folder: Path, raw: dict[str, Any]) -> tuple[int, ...]:
    """Ids that end a sequence, from generation_config.json (if present), config.json and its
    `text_config`.
    """
    found: set[int] = set()
    generation = folder / "generation_config.json"
    text = raw.get("text_config")
    tables = [raw, text if isinstance(text, dict) else {}]
    if generation.exists():
        tables.append(read_json(generation))
    for table in tables:
        value = table.get("eos_token_id")
        for token_id in value if isinstance(value, list) else [value]:
            if isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0:
                found.add(token_id)
    return tuple(sorted(found))


def _existing(path: Path, source: str) -> Path:
    if path.suffix.lower() == ".gguf" and not path.is_dir():
        raise InvalidRequestError(GGUF, param="model")
    if path.is_file():
        raise InvalidRequestError(
            f"{source!r} is a file. Name the model's folder: {str(path.parent)!r}.", param="model"
        )
    if not path.is_dir():
        hint = (
            f" For a model of the hub write hf://{source}." if REPOSITORY.fullmatch(source) else ""
        )
        raise InvalidRequestError(f"There is no model folder at {source!r}.{hint}", param="model")
    return path


def _builtin(name: str) -> Path:
    names = sorted(path.parent.name for path in BUILTIN.glob("*/config.json"))
    if name not in names:
        raise InvalidRequestError(
            f"There is no built-in model {name!r}. Built in: {', '.join(names) or 'none'}.",
            param="model",
        )
    return BUILTIN / name


def _pinned(rest: str, revision: str | None) -> tuple[str, str | None]:
    """Split `org/name[@revision]`; the revision may be given here or in the settings, not both."""
    repository, separator, named = rest.partition("@")
    pinned = named if separator else revision
    if revision is not None and pinned != revision:
        raise InvalidRequestError(
            f"The source names revision {named!r} and the settings name {revision!r}. Name one.",
            param="revision",
        )
    if not REPOSITORY.fullmatch(repository) or ".." in rest:
        raise InvalidRequestError(
            f"hf://{rest} does not name a model. Write hf://ORG/NAME or hf://ORG/NAME@REVISION, "
            "for example hf://Qwen/Qwen3-0.6B.",
            param="model",
        )
    if pinned is not None and (not REVISION.fullmatch(pinned) or ".." in pinned):
        raise InvalidRequestError(
            f"{pinned!r} is not a revision. Name a branch, a tag or a commit.", param="revision"
        )
    return repository, pinned


class _Remote(Protocol):
    """Where models are downloaded from: the modules `hub` and `bucket`."""

    def settings(self, place: str, revision: str | None, /) -> Path: ...

    def weights(
        self, place: str, folder: Path, names: Sequence[str], report: "Report", /
    ) -> None: ...

    def file_names(self, place: str, folder: Path, /) -> list[str]: ...


def _remote(scheme: str) -> _Remote:
    if scheme == "hf":
        from yaie.checkpoint import hub

        return hub
    try:
        from yaie.checkpoint.download import bucket
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        raise InvalidRequestError(missing("An s3:// model", error, "s3"), param="model") from error
    return bucket


def _download(
    remote: _Remote,
    place: str,
    revision: str | None,
    *,
    with_weights: bool,
    check: Callable[[Path], object],
    report: "Report | None",
) -> Path:
    from yaie.checkpoint.download.progress import Teller

    folder = remote.settings(place, revision)
    read_config(folder)
    check(folder)
    if not with_weights:
        return folder
    names = weight_files(folder)
    told = Teller()
    try:
        remote.weights(place, folder, names, report or told)
    finally:
        told.end()
    if not any((folder / name).exists() for name in names):
        _refuse_other_formats(remote.file_names(place, folder))
    return folder
