"""Downloads large files so that a later try goes on where a killed one stopped.

The library begins a file again after its process has ended. Here the bytes that came are kept in
the hub's cache, as `blobs/HASH.partial`; a finished file becomes `blobs/HASH`, which the library
finds and links. Files that the hub stores in chunks (Xet) are left to the library.
"""

import fcntl
import hashlib
import importlib.util
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import HfFileMetadata, http_get
from huggingface_hub.utils._headers import build_hf_headers

from yaie.checkpoint.download.bars import bar_of
from yaie.checkpoint.download.progress import Meter

_FILES_AT_ONCE: Final = 4
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

# The library counts whole chunks, and loses a started one: 10 MiB are many on a slow line.
constants.DOWNLOAD_CHUNK_SIZE = 2**20


def fetch_all(repository: str, folder: Path, names: Sequence[str], meter: Meter) -> None:
    """Download files of the commit in `folder` (`CACHE/models--ORG--NAME/snapshots/COMMIT`) into
    the cache's blobs. A file that cannot be handled here is left to the library.
    """
    blobs = folder.parents[1] / "blobs"
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for _ in pool.map(lambda name: _fetch(repository, folder.name, name, blobs, meter), names):
            pass


def _fetch(repository: str, commit: str, name: str, blobs: Path, meter: Meter) -> None:
    url = hf_hub_url(repository, name, revision=commit)
    found = get_hf_file_metadata(url, headers=build_hf_headers())
    if not _can_go_on(found):
        return
    blob, size = blobs / str(found.etag), int(found.size or 0)
    blobs.mkdir(parents=True, exist_ok=True)
    with blob.with_name(f"{blob.name}.partial").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another engine of this machine may be at it
        if blob.exists():
            Path(file.name).unlink(missing_ok=True)
            return
        begun = file.tell()
        meter.stored(begun)
        if begun < size:
            _go_on(url, file, size, meter)
        file.flush()
        if begun and not _has_hash(Path(file.name), blob.name):
            Path(file.name).unlink()  # the library fetches it as a whole
            meter.stored(-size)
            return
        Path(file.name).rename(blob)


def _can_go_on(found: HfFileMetadata) -> bool:
    """Whether the file is sent in one piece, and its name in the cache is its hash."""
    has_xet = importlib.util.find_spec("hf_xet") and not constants.HF_HUB_DISABLE_XET
    is_chunked = found.xet_file_data is not None and bool(has_xet)
    is_sent = 0 < (found.size or 0) <= constants.MAX_HTTP_DOWNLOAD_SIZE
    return is_sent and not is_chunked and _SHA256.fullmatch(found.etag or "") is not None


def _go_on(url: str, file: BinaryIO, size: int, meter: Meter) -> None:
    """Append the rest of a file; the library tries a broken connection again a few times."""
    begun = file.tell()
    http_get(
        url,
        file,
        resume_size=begun,
        headers=build_hf_headers(),
        expected_size=size,
        tqdm_class=bar_of(meter),
    )


def _has_hash(path: Path, sha256: str) -> bool:
    """Whether a file that was written by several processes is what the hub has."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
