"""Errors about a request that was made from another one, in the words of the one that was sent.

Requests of the responses and messages APIs are served as chat requests; what is wrong with those
is told with the names of the fields that the client wrote. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

from yaie_api.errors import InvalidRequestError

_PATH: Final = re.compile(r"\w+(\.\w+)*")


def renamed(error: InvalidRequestError, sent: Mapping[str, str]) -> InvalidRequestError:
    """The same error with the client's names: of its `param`, and of the field that its message
    begins with. `sent`: dotted path in the chat request → where that came from.
    """
    error.param = sent.get(error.param or "", error.param)
    if begins := _PATH.match(error.message):
        error.message = _sent_as(begins[0], sent) + error.message[begins.end() :]
    return error


def _sent_as(path: str, sent: Mapping[str, str]) -> str:
    """The path with its longest known beginning exchanged."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        head = sent.get(".".join(parts[:length]))
        if head is not None:
            return ".".join((head, *parts[length:]))
    return path
