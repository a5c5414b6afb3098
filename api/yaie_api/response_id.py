"""Ids of stored responses. Each lives in the memory of one engine, and its id says of which:

    resp_ 1f0c22a9 5d0e…       8 hex digits of the pod's name, then 32 random ones

So every router finds the engine from the id alone, whichever router made the way there before. An
engine that runs by hand has no pod: its ids have the random digits only.
"""

import hashlib
import re
import uuid
from typing import Final

_MARKED: Final = re.compile(r"resp_([0-9a-f]{8})[0-9a-f]{32}")


def mark_of_pod(pod: str) -> str:
    """What the ids of this pod's responses begin with; "" for no pod."""
    return hashlib.blake2b(pod.encode(), digest_size=4).hexdigest() if pod else ""


def new_response_id(mark: str) -> str:
    return f"resp_{mark}{uuid.uuid4().hex}"


def mark_in(response_id: str) -> str | None:
    """The mark of the pod that made this id; None where it has none."""
    found = _MARKED.fullmatch(response_id)
    return found[1] if found else None
