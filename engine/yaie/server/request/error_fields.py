"""Renames the fields in errors about a converted request to those that the client has sent.

Requests of the responses and messages APIs are converted to chat requests. An error in the chat
request must name the field of the original one. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

from yaie_api.errors import InvalidRequestError

_PATH: Final = re.compile(r"\w+(\.\w+)*")


def renamed(error: InvalidRequestError, sent: Mapping[str, str]) -> InvalidRequestError:
    """Rename the error's `param`, and the field with which its message begins.

    `sent`: dotted path in the chat request → path in the request that the client sent.
    """
    error.param = sent.get(error.param or "", error.param)
    if begins := _PATH.match(error.message):
        error.message = _sent_as(begins[0], sent) + error.message[begins.end() :]
    return error


def _sent_as(path: str, sent: Mapping[str, str]) -> str:
    """Replace the longest prefix of the path that `sent` knows."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        head = sent.get(".".join(parts[:length]))
        if head is not None:
            return ".".join((head, *parts[length:]))
    return path
