"""The two files of a batch: the input is read twice, the output appears when it is complete.

A file that cannot be read or written is reported before the work begins, not hours later.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from yaie_api.errors import InvalidRequestError


def readable(path: Path) -> IO[str]:
    """Open the input. Bytes that are not UTF-8 make only their own line invalid.

    Raises:
        InvalidRequestError: it cannot be read, or cannot be read twice.

    """
    with _told("read", path):
        file = path.open(encoding="utf-8-sig", errors="surrogateescape")
    if file.seekable():
        return file
    file.close()
    raise InvalidRequestError(f"Cannot read {str(path)!r}: it must be a file, not a pipe.")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Write to a temporary file beside `path`. It replaces `path` at the end; an error removes it.

    Raises:
        InvalidRequestError: it cannot be written.

    """
    if path.exists() and not path.is_file():
        raise InvalidRequestError(f"Cannot write {str(path)!r}: it is not a file.")
    target = path.resolve()
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    with _told("write", path):
        file = part.open("xb")

    def write(content: bytes) -> None:
        with _told("write", path):
            file.write(content)

    try:
        yield write
        with _told("write", path):
            file.close()
            part.replace(target)
    finally:
        with contextlib.suppress(OSError):  # the write has already raised
            file.close()
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _told(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequestError(f"Cannot {verb} {str(path)!r}: {error.strerror}.") from error
