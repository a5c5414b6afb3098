"""What the router itself is out of. No engine is to blame for it."""

import errno
from typing import Final

_OWN: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)


def is_own(error: Exception) -> bool:
    """Whether a connection failed because the router has no descriptor, memory or port for it."""
    return isinstance(error, OSError) and error.errno in _OWN
