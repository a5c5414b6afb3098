"""Ids of stored responses. A response is stored in the memory of one engine, which its id names:

    resp_ 1f0c22a9 5d0e…       8 hex digits: hash of the pod's name; then 32 random hex digits

So any router finds the engine from the id alone. An engine that was started by hand has no pod; its
ids have only the random digits.
"""

import hashlib
import re
import uuid
from typing import Final

PREFIX: Final = "resp_"
_MARKED: Final = re.compile(PREFIX + r"([0-9a-f]{8})[0-9a-f]{32}")


def mark_of_pod(pod: str) -> str:
    """The mark with which the ids of this pod's responses begin; "" if there is no pod."""
    return hashlib.blake2b(pod.encode(), digest_size=4).hexdigest() if pod else ""


def new_response_id(mark: str) -> str:
    return f"{PREFIX}{mark}{uuid.uuid4().hex}"


def mark_in(response_id: str) -> str | None:
    """The mark of the pod that made this id; None if the id has no mark."""
    found = _MARKED.fullmatch(response_id)
    return found[1] if found else None
