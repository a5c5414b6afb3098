"""Downloads a model from the Hugging Face hub: first its settings, then its weights.

The settings (a few small files) decide whether the model is supported, before gigabytes are
downloaded. Both passes read the same commit, so a push in between cannot mix two versions. Every
failure becomes one message that says what to do. Imported only for `hf://` sources.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from yaie.checkpoint import pooling
from yaie.checkpoint.download import resume
from yaie.checkpoint.download.bars import bar_of
from yaie.checkpoint.download.progress import Meter, Report, watched
from yaie.checkpoint.source import DISK, PLACE, SETTINGS
from yaie_api.errors import InvalidRequestError, UnavailableError, YaieError
from yaie_api.logs import fields

T = TypeVar("T")

log = logging.getLogger(__name__)

SUBFOLDERS = "*/*"
"""Not downloaded: subfolders hold other formats of the same model."""
TOKEN = "HF_TOKEN (in a cluster: spec.model.secretRef)"  # noqa: S105 - where to put one
BAD_TOKEN = "Invalid credentials in Authorization header"  # noqa: S105 - the hub's own words


def settings(repository: str, revision: str | None) -> Path:
    """Download the small files; returns their folder, which is named after the commit.

    Raises:
        InvalidRequestError: the repository or revision does not exist, or may not be read.
        UnavailableError: the hub cannot be reached or fails; a retry can help.

    """
    folder = _fetch(repository, revision, SETTINGS, but=SUBFOLDERS)
    if (folder / pooling.MODULES).is_file():
        _fetch(repository, folder.name, [pooling.POOLING])
    return folder


def weights(repository: str, folder: Path, names: Sequence[str], report: Report) -> None:
    """Download the named files of weights, from the same commit as the settings in `folder`; those
    that are there already are not asked for. `report` is told how far it is.

    Raises:
        InvalidRequestError: they may not be read, or cannot be stored.
        UnavailableError: the hub cannot be reached or fails; a retry can help.

    """
    missing = [name for name in names if not (folder / name).exists()]
    if not missing:
        return
    sizes = _told(repository, None, lambda: _sizes(repository, folder.name))
    missing = [name for name in missing if name in sizes]
    meter = Meter(repository, sum(sizes[name] for name in missing))

    def fetch() -> str:
        resume.fetch_all(repository, folder, missing, meter)
        return _snapshot(repository, folder.name, missing, meter)

    if missing:
        _logged(repository, None, missing, lambda: watched(fetch, meter, report))


def file_names(repository: str, folder: Path) -> list[str]:
    """Names of all files of the commit from which the settings in `folder` are.

    Raises:
        InvalidRequestError: they may not be read.
        UnavailableError: the hub cannot be reached or fails; a retry can help.

    """
    return _told(
        repository, None, lambda: HfApi().list_repo_files(repository, revision=folder.name)
    )


def explain(error: Exception, repository: str, revision: str | None) -> YaieError:
    """Convert a failed download's error to one whose message tells the user what to do."""
    for cause in _chain(error):
        if (known := _known(cause, repository, revision)) is not None:
            return known
    return UnavailableError(
        f"{repository} could not be downloaded: the hub cannot be reached, or the connection broke "
        "off. Check the network and try again; finished files are kept."
    )


def _fetch(
    repository: str, revision: str | None, patterns: Sequence[str], *, but: str | None = None
) -> Path:
    meter = Meter(repository)
    return _logged(
        repository,
        revision,
        patterns,
        lambda: _snapshot(repository, revision, patterns, meter, but=but),
    )


def _snapshot(
    repository: str,
    revision: str | None,
    patterns: Sequence[str],
    meter: Meter,
    *,
    but: str | None = None,
) -> str:
    return snapshot_download(
        repository,
        revision=revision,
        allow_patterns=list(patterns),
        ignore_patterns=but,
        tqdm_class=bar_of(meter),
    )


def _sizes(repository: str, commit: str) -> dict[str, int]:
    """The size of each file of a commit, in bytes."""
    entries = HfApi().list_repo_tree(repository, revision=commit, recursive=True)
    return {entry.path: entry.size for entry in entries if isinstance(entry, RepoFile)}


def _logged(
    repository: str, revision: str | None, files: Sequence[str], fetch: Callable[[], str]
) -> Path:
    started = time.monotonic()
    log.info("fetching model", extra=fields(model=repository, files=list(files)))
    folder = _told(repository, revision, fetch)
    seconds = round(time.monotonic() - started, 3)
    log.info("model fetched", extra=fields(model=repository, seconds=seconds))
    return Path(folder)


def _told(repository: str, revision: str | None, fetch: Callable[[], T]) -> T:
    try:
        return fetch()
    except Exception as error:
        told = explain(error, repository, revision)
        if told.retryable:  # e.g. DNS, proxy, certificate
            kinds = " from ".join(type(one).__name__ for one in _chain(error))
            log.warning("download failed", extra=fields(error=kinds))
            log.debug("download failed", exc_info=True)
        raise told from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _known(error: BaseException, repository: str, revision: str | None) -> YaieError | None:
    match error:
        case OfflineModeIsEnabled():
            return _refused(
                f"{repository} is not complete in the local cache, and HF_HUB_OFFLINE forbids to "
                "download it. Unset HF_HUB_OFFLINE, or fetch the model once where it is not set."
            )
        case HfHubHTTPError():
            return _answer(error, repository, revision)
        case OSError(errno=number, strerror=reason) if number in DISK:
            return _refused(f"{repository} could not be stored: {reason}. {PLACE}")
    return None


def _answer(error: HfHubHTTPError, repository: str, revision: str | None) -> YaieError | None:
    match error:
        case GatedRepoError():
            return _refused(
                f"{repository} is gated. Accept its terms on its page at the hub, then set "
                f"{TOKEN} to a token of the account that accepted them."
            )
        case RepositoryNotFoundError():
            return _no_repository(repository)
        case RevisionNotFoundError():
            return _refused(
                f"{repository} has no revision {revision or 'main'!r}. Name one of its branches, "
                "tags or commits."
            )
    return _status(error.response.status_code, error, repository)


def _status(status: int, error: HfHubHTTPError, repository: str) -> YaieError | None:
    if status == 401 and error.response.headers.get("X-Error-Message") == BAD_TOKEN:
        return _refused("The hub does not accept the token in HF_TOKEN. Set a valid one.")
    if status in {401, 404}:
        return _no_repository(repository)
    if status == 403:
        return _refused(
            f"The token in HF_TOKEN may not read {repository}. Give it that permission at the hub."
        )
    if status == 429 or status >= 500:
        return UnavailableError(
            f"The hub answered with status {status} for {repository}. Try again later; finished "
            "files are kept."
        )
    return None


def _no_repository(repository: str) -> InvalidRequestError:
    return _refused(
        f"There is no model {repository} on the hub, or it is private. Check the name; for a "
        f"private model set {TOKEN} to a token that may read it."
    )


def _refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, param="model")
