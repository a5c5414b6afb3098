"""The models that this machine has: those of the hub's cache, and the built-in ones.

The cache is the hub library's own, shared with other programs: `models--ORG--NAME` holds `blobs`,
`snapshots/COMMIT` and `refs/NAME`. It is read without the library, whose import takes long.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yaie.checkpoint import source
from yaie_api.errors import InvalidRequestError, NotFoundError

_PREFIX: Final = "models--"
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-\w.]*/)?[A-Za-z0-9][-\w.]*", re.ASCII)
"""Old models of the hub have no ORG."""


@dataclass(frozen=True)
class CachedModel:
    """One revision of a model on this machine.

    Attributes:
        name: as commands take it.
        revision: commit; "" of a built-in model.
        refs: branches and tags that name the commit.
        n_bytes: size of its files, of which other revisions may share some.
        modified_s: when its newest file came, in seconds since the epoch.
        is_complete: whether all files of weights are there.

    """

    name: str
    revision: str
    refs: tuple[str, ...]
    n_bytes: int
    modified_s: float
    is_complete: bool


def cache_folder() -> Path:
    """Where the hub's library keeps models: HF_HUB_CACHE, or `hub` in HF_HOME."""
    if given := os.environ.get("HF_HUB_CACHE"):
        return Path(given).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"


def cached_models(folder: Path) -> list[CachedModel]:
    """The models in a cache, the newest first, then the built-in ones."""
    found = [model for one in folder.glob(f"{_PREFIX}*") for model in _revisions(one)]
    built_in = [
        _model(path.parent, f"builtin://{path.parent.name}")
        for path in source.BUILTIN.glob(f"*/{source.CONFIG}")
    ]
    return [*sorted(found, key=lambda model: -model.modified_s), *built_in]


def remove(folder: Path, name: str) -> int:
    """Delete a model of the hub with all its revisions from a cache; returns the bytes it took.

    Raises:
        InvalidRequestError: the name is none of the hub.
        NotFoundError: the cache does not hold it.

    """
    name = name.removeprefix("hf://")
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(f"{name!r} is not the name of a model of the hub: ORG/NAME")
    path = folder / (_PREFIX + name.replace("/", "--"))
    if not path.is_dir():
        raise NotFoundError(f"{name} is not on this machine; `yaie ls` lists what is")
    size = sum(one.stat().st_size for one in (path / "blobs").glob("*"))
    shutil.rmtree(path)
    return size


def _revisions(repository: Path) -> Iterator[CachedModel]:
    name = repository.name.removeprefix(_PREFIX).replace("--", "/", 1)
    refs: dict[str, list[str]] = {}
    base = repository / "refs"
    for ref in (path for path in base.rglob("*") if path.is_file()):
        refs.setdefault(ref.read_text().strip(), []).append(str(ref.relative_to(base)))
    for snapshot in (repository / "snapshots").glob("*"):
        named = tuple(sorted(refs.get(snapshot.name, ())))
        yield _model(snapshot, name, snapshot.name, named)


def _model(folder: Path, name: str, revision: str = "", refs: tuple[str, ...] = ()) -> CachedModel:
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    modified_s = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
    size = sum(file.st_size for file in files)
    return CachedModel(name, revision, refs, size, modified_s, _is_complete(folder))


def _is_complete(folder: Path) -> bool:
    try:
        source.weight_paths(folder)
    except InvalidRequestError:
        return False
    return (folder / source.CONFIG).is_file()
