"""Download of one model from the Hugging Face hub: the settings first, then only its weights.

The settings (a few files) say if the model is one we refuse, before gigabytes are fetched. Both
passes read the same commit, so a push in between cannot mix two versions. Whatever goes wrong is
told in one sentence that says what to do. Imported only for `hf://` sources.
"""

import errno
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from yaie.checkpoint import pooling
from yaie_api.errors import InvalidRequestError, UnavailableError, YaieError
from yaie_api.logs import fields

T = TypeVar("T")

log = logging.getLogger(__name__)

SETTINGS = (
    "*.json",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
"""Configuration, tokenizer and chat template; the index of the weights too."""
SUBFOLDERS = "*/*"
"""Not searched: other formats of the same model live there."""
TOKEN = "HF_TOKEN (in a cluster: spec.model.secretRef)"  # noqa: S105 - where to put one
DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS})
BAD_TOKEN = "Invalid credentials in Authorization header"  # noqa: S105 - the hub's own words


class DownloadBar(tqdm):
    """A progress bar on a terminal; nothing in a log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **(kwargs | {"disable": kwargs.get("disable")}))  # type: ignore[no-untyped-call]  # the library's own class


def settings(repository: str, revision: str | None) -> Path:
    """Fetch the small files. The folder that they are in is named after the commit.

    Raises:
        InvalidRequestError: no such repository or revision, or no permission to read it.
        UnavailableError: the hub cannot be reached or is not well; trying again can help.

    """
    folder = _fetch(repository, revision, SETTINGS, but=SUBFOLDERS)
    if (folder / pooling.MODULES).is_file():
        _fetch(repository, folder.name, [pooling.POOLING])
    return folder


def weights(repository: str, folder: Path, names: Sequence[str]) -> None:
    """Fetch the named weights of the commit that `folder` holds the settings of.

    Raises:
        InvalidRequestError: no permission to read them, or no room to write them.
        UnavailableError: the hub cannot be reached or is not well; trying again can help.

    """
    _fetch(repository, folder.name, names)


def file_names(repository: str, folder: Path) -> list[str]:
    """Names of all files of the commit that `folder` holds the settings of.

    Raises:
        InvalidRequestError: no permission to see them.
        UnavailableError: the hub cannot be reached or is not well; trying again can help.

    """
    return _told(
        repository, None, lambda: HfApi().list_repo_files(repository, revision=folder.name)
    )


def explain(error: Exception, repository: str, revision: str | None) -> YaieError:
    """What a failed download means for the user, and what to do about it."""
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
    started = time.monotonic()
    log.info("fetching model", extra=fields(model=repository, files=list(patterns)))
    folder = _told(
        repository,
        revision,
        lambda: snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(patterns),
            ignore_patterns=but,
            tqdm_class=DownloadBar,
        ),
    )
    seconds = round(time.monotonic() - started, 3)
    log.info("model fetched", extra=fields(model=repository, seconds=seconds))
    return Path(folder)


def _told(repository: str, revision: str | None, fetch: Callable[[], T]) -> T:
    try:
        return fetch()
    except Exception as error:
        told = explain(error, repository, revision)
        if told.retryable:  # name lookup, proxy, certificate: the log says which
            log.warning("download failed", exc_info=True)
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
            return _refused(
                f"{repository} could not be stored: {reason}. HF_HOME names the folder that models "
                "are kept in; it needs room and permission to write."
            )
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
