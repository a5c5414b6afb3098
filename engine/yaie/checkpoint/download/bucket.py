"""Downloads a model from S3-compatible object storage: first its settings, then its weights.

The files of the model are directly below the path. They are kept below the cache, in a folder that
is named after a hash of their names, sizes and ETags, so two versions never mix. A file that came
in part has a dot before its name; a later try goes on with it. Imported only for `s3://` sources.
"""

import fcntl
import fnmatch
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import obstore
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from yaie.checkpoint import pooling, source
from yaie.checkpoint.download.cached import cache_folder
from yaie.checkpoint.download.progress import Meter, Report, watched
from yaie_api.errors import InvalidRequestError, UnavailableError, YaieError
from yaie_api.logs import fields

T = TypeVar("T")
log = logging.getLogger(__name__)

LOCATION: Final = re.compile(r"([a-z0-9][-a-z0-9.]*[a-z0-9])((?:/[-A-Za-z0-9._=+]+)*)/?", re.ASCII)
CREDENTIALS: Final = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (in a cluster: a Secret with these keys in "
    "spec.model.secretRef)"
)
_CHUNK: Final = 2**20
_FILES_AT_ONCE: Final = 4
_TRIES: Final = 5
_PAUSE_S: Final = 1.0
_PATIENCE: Final = timedelta(seconds=30)


@dataclass(frozen=True)
class File:
    """A file of a listing. `tag`: its ETag."""

    name: str
    size: int
    tag: str


def settings(location: str, revision: str | None) -> Path:
    """Download the small files of `BUCKET/PATH`; returns their folder. Buckets have no revisions.

    Raises:
        InvalidRequestError: there is no model, or it may not be read.
        UnavailableError: the storage cannot be reached or fails; a retry can help.

    """
    if revision is not None:
        raise AssertionError("unreachable: source.resolve refuses a revision of a bucket")
    bucket, path = _parts(location)
    store = _store(bucket, path)
    files = _told(location, lambda: _listed(store))
    if not files:
        raise _nothing(location)
    folder = cache_folder().parent / "s3" / bucket / path / _fingerprint(files)
    folder.mkdir(parents=True, exist_ok=True)
    small = [file for file in files if _is_setting(file.name)]
    meter = Meter(f"s3://{location}")
    for file in small:
        _told(location, partial(_fetch, store, file, folder, meter))
    if (folder / pooling.MODULES).is_file():
        _told(location, lambda: _fetch_pooling(store, folder, meter))
    return folder


def weights(location: str, folder: Path, names: Sequence[str], report: Report) -> None:
    """Download the named files of weights, of the same version as the settings in `folder`.

    Raises:
        InvalidRequestError: they may not be read, or cannot be stored.
        UnavailableError: the storage cannot be reached or fails, or the files were changed
            meanwhile; a retry can help.

    """
    missing = [name for name in names if not (folder / name).exists()]
    if not missing:
        return
    store = _store(*_parts(location))
    files = _told(location, lambda: _listed(store))
    if _fingerprint(files) != folder.name:
        raise _changed(location)
    wanted = [file for file in files if file.name in missing]
    meter = Meter(f"s3://{location}", sum(file.size for file in wanted))

    def fetch() -> None:
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            for _ in pool.map(lambda file: _fetch(store, file, folder, meter), wanted):
                pass

    started = time.monotonic()
    log.info("fetching model", extra=fields(model=f"s3://{location}", files=missing))
    _told(location, lambda: watched(fetch, meter, report))
    seconds = round(time.monotonic() - started, 3)
    log.info("model fetched", extra=fields(model=f"s3://{location}", seconds=seconds))


def file_names(location: str, folder: Path) -> list[str]:
    """Names of all files directly below the path; `folder` is not needed.

    Raises:
        InvalidRequestError: they may not be read.
        UnavailableError: the storage cannot be reached or fails; a retry can help.

    """
    del folder
    store = _store(*_parts(location))
    return [file.name for file in _told(location, lambda: _listed(store))]


def _parts(location: str) -> tuple[str, str]:
    match = LOCATION.fullmatch(location)
    if match is None or ".." in location.split("/"):
        raise InvalidRequestError(
            f"s3://{location} does not name a model. Write s3://BUCKET/PATH, where the files of "
            "the model are directly below PATH.",
            param="model",
        )
    return match[1], match[2].strip("/")


def _store(bucket: str, path: str) -> S3Store:
    """The bucket with the credentials, region and endpoint of the environment (AWS_*), or those of
    the machine's or the pod's own identity.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return S3Store(
        bucket,
        prefix=path or None,
        client_options={"allow_http": endpoint.startswith("http://")},
        retry_config={"max_retries": 3, "retry_timeout": _PATIENCE},
    )


def _listed(store: S3Store) -> tuple[File, ...]:
    """The files directly below the path, by name."""
    found = obstore.list_with_delimiter(store)["objects"]
    files = (File(one["path"], one["size"], str(one["e_tag"] or "")) for one in found)
    return tuple(sorted(files, key=lambda file: file.name))


def _fingerprint(files: Sequence[File]) -> str:
    """A hash of what a version of the model consists of."""
    wanted = (f for f in files if _is_setting(f.name) or f.name.endswith(".safetensors"))
    text = "\n".join(f"{file.name} {file.size} {file.tag}" for file in wanted)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _is_setting(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in source.SETTINGS)


def _fetch(store: S3Store, file: File, folder: Path, meter: Meter) -> None:
    """Download one file, or the rest of it. The ETag keeps two versions from mixing."""
    if (folder / file.name).exists():
        return
    with (folder / f".{file.name}.partial").open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)  # another engine of this machine may be at it
        if (folder / file.name).exists():
            Path(part.name).unlink(missing_ok=True)
            return
        meter.stored(part.tell())
        for left in reversed(range(_TRIES)):
            try:
                while part.tell() < file.size:
                    options = {"if_match": file.tag, "range": {"offset": part.tell()}}
                    for chunk in obstore.get(store, file.name, options=options).stream(_CHUNK):
                        part.write(chunk)
                        meter.stored(len(chunk))
                        meter.received(len(chunk))
                break
            except BaseError as error:
                if not left or isinstance(error, _FINAL):
                    raise
                time.sleep(_PAUSE_S)
        part.flush()
        Path(part.name).rename(folder / file.name)


def _fetch_pooling(store: S3Store, folder: Path, meter: Meter) -> None:
    try:
        found = obstore.head(store, pooling.POOLING)
    except NotFoundError:
        return
    target = folder / pooling.POOLING
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        body = bytes(obstore.get(store, pooling.POOLING).bytes())
        meter.stored(found["size"])
        target.write_bytes(body)


_FINAL: Final = (NotFoundError, PermissionDeniedError, PreconditionError, UnauthenticatedError)


def _told(location: str, fetch: Callable[[], T]) -> T:
    """Run a request; its failure becomes a sentence that says what to do.

    Raises:
        InvalidRequestError: it cannot work without a change.
        UnavailableError: a retry can help.

    """
    try:
        return fetch()
    except BaseError as error:
        raise _explained(error, location) from error
    except OSError as error:
        if error.errno not in source.DISK:
            raise
        raise InvalidRequestError(
            f"s3://{location} could not be stored: {error.strerror}. {source.PLACE}", param="model"
        ) from error


def _explained(error: BaseError, location: str) -> YaieError:
    """The error that the user reads. The library's own text is not shown: it names the request."""
    match = _STATUS.search(str(error))  # of a listing that failed the library tells no class
    status = int(match[1]) if match else 0
    if isinstance(error, NotFoundError) or status == 404:
        return _nothing(location)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in {401, 403}:
        return InvalidRequestError(
            f"s3://{location} may not be read with these credentials, or with none. Set "
            f"{CREDENTIALS} of an account that may list and read it.",
            param="model",
        )
    if isinstance(error, PreconditionError):
        return _changed(location)
    about = fields(error=type(error).__name__, status=status)
    log.warning("download failed", extra=about)
    return UnavailableError(
        f"s3://{location} could not be downloaded: the storage cannot be reached, or it refuses. "
        "Check AWS_ENDPOINT_URL, AWS_REGION and the network, and try again; what has come is kept."
    )


_STATUS: Final = re.compile(r"status code: (\d{3})")


def _nothing(location: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"There is no model at s3://{location}: the bucket does not exist, or it has no files "
        "directly below this path. Check the name.",
        param="model",
    )


def _changed(location: str) -> UnavailableError:
    return UnavailableError(
        f"The files of s3://{location} were changed during the download. Try again: the new ones "
        "are fetched then."
    )
