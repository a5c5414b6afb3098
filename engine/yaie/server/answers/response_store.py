"""Stores finished responses, which clients can get again or continue. The store is in memory and
bounded; the oldest are dropped first, and a restart of the server drops all.
"""

import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from yaie.server.answers.chunks import json_bytes

MAX_RESPONSES: Final = 1024
MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """A finished response. `input_items`: those of its request; `items`: the whole conversation,
    with the output at its end.
    """

    response: dict[str, Any]
    input_items: list[dict[str, Any]]
    items: list[dict[str, Any]]


class ResponseStore:
    """Responses by tenant and id."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._bytes = 0
        self._found: OrderedDict[tuple[str, str], tuple[Stored, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def put(self, tenant: str, stored: Stored) -> None:
        """Store a response, and drop the oldest ones while the limits are exceeded."""
        size = _size(stored)
        self._found[tenant, stored.response["id"]] = (stored, size)
        self._bytes += size
        while len(self._found) > self._max_responses or self._bytes > self._max_bytes:
            _, (_, dropped) = self._found.popitem(last=False)
            self._bytes -= dropped

    def get(self, tenant: str, response_id: str) -> Stored | None:
        """Return a response of this tenant; None: there is none, or it was dropped."""
        entry = self._found.get((tenant, response_id))
        return None if entry is None else entry[0]

    def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response; False: there is none."""
        entry = self._found.pop((tenant, response_id), None)
        self._bytes -= entry[1] if entry is not None else 0
        return entry is not None


def _size(stored: Stored) -> int:
    """Estimate the memory it takes. Responses of one conversation share their items."""
    return 2 * len(json_bytes((stored.response, stored.items))) + sys.getsizeof(stored)
