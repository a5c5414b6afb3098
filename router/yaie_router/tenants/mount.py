"""The entries of a Secret or a ConfigMap that is mounted as a folder, read again as they change.

The kubelet writes the entries of a new version into a folder of its own, and then turns the link
`..data` over to it, so that whoever reads through the link once sees one version. An ordinary
folder will do, too.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from yaie_api.logs import fields

log = logging.getLogger(__name__)

Entries = Mapping[str, bytes]
PERIOD_S: Final = 5.0
"""Between two looks. The kubelet takes up to a minute, or somewhat more, to bring a change."""
_VERSION: Final = "..data"


def entries(folder: Path) -> dict[str, bytes]:
    """The contents of the folder's files by name, without hidden ones.

    Raises:
        OSError: the folder or a file cannot be read, or a new version came meanwhile.

    """
    version = folder / _VERSION
    now = version.resolve(strict=True) if version.is_symlink() else folder
    files = (path for path in sorted(now.iterdir()) if not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files if path.is_file()}


class Mount:
    """Calls `take` with the folder's entries, at the first look and after each change.

    What it keeps of them is a hash. A folder that cannot be read changes nothing: `take` is called
    when it can be read again.
    """

    def __init__(self, folder: Path, take: Callable[[Entries], None]) -> None:
        self._folder = folder
        self._take = take
        self._seen = b""
        self._problem = ""

    def look(self) -> None:
        """Read the folder."""
        self._look(self._read())

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            self._look(await asyncio.to_thread(self._read))

    def _read(self) -> Entries | None:
        try:
            found = entries(self._folder)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if reason != self._problem:  # else it has been told
                told = fields(folder=str(self._folder), error=reason)
                log.warning("a folder cannot be read; what it had before counts", extra=told)
            self._problem = reason
            return None

        self._problem = ""
        return found

    def _look(self, found: Entries | None) -> None:
        if found is None:
            return
        seen = hashlib.sha256(repr(sorted(found.items())).encode()).digest()
        if seen != self._seen:
            self._seen = seen
            self._take(found)
