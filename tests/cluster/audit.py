"""The API server's own record of who did what: the proof that a reconcile changed nothing.

Every write to the API server is one line, and so is every read by a ServiceAccount of ours; other
reads are not recorded. Renewals of Leases are writes too, and tests that count writes leave them
out unless they ask.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

WRITING_VERBS = ["create", "update", "patch", "delete", "deletecollection"]
OURS = "yaie-system"
"""Namespace of the ServiceAccounts whose reads are recorded too."""
CHUNK_BYTES = 4096
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": WRITING_VERBS},
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{OURS}"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Request:
    """One request, as the API server answered it."""

    user: str
    verb: str
    resource: str
    """Plural, with the subresource after a slash: `deployments`, `inferencemodels/status`."""
    namespace: str
    name: str
    code: int
    """HTTP status of the answer; a refused write (409, 422, 403) is a write too."""
    agent: str
    """The client's User-Agent."""
    group: str = ""
    """API group of the resource; "" for the core group."""
    at: float = field(default=0.0, compare=False)
    """Unix seconds of the answer."""

    @property
    def is_write(self) -> bool:
        return self.verb in WRITING_VERBS


class AuditLog:
    """Reads the audit log of a control plane."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """A position: `writes_since` of it returns what comes later. It is the end of the last
        whole line: the API server may be in the middle of the next one.
        """
        if not self._path.exists():
            return 0
        with self._path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            while end:
                begin = max(0, end - CHUNK_BYTES)
                log.seek(begin)
                found = log.read(end - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                end = begin
        return 0

    def writes_since(
        self, mark: int, *, user: str | None = None, leases: bool = False
    ) -> list[Request]:
        """Writes after `mark`, oldest first.

        Args:
            mark: a result of `mark()`.
            user: only this user's, e.g. `system:serviceaccount:yaie-system:yaie`.
            leases: with Leases, which are renewed for ever.

        """
        return [
            write
            for write in self._read(mark)
            if write.is_write
            and (leases or write.resource != "leases")
            and user in (None, write.user)
        ]

    def requests_since(self, mark: int, *, user: str) -> list[Request]:
        """All requests of a user after `mark`, oldest first: reads too, and Leases. A watch counts
        when it begins.
        """
        return [request for request in self._read(mark) if request.user == user]

    def _read(self, mark: int) -> Iterator[Request]:
        with self._path.open("rb") as log:
            log.seek(mark)
            for line in log:
                if line.endswith(b"\n"):  # the API server may be writing the last one
                    event = json.loads(line)
                    if event["verb"] != "watch" or event.get("stage") == "ResponseStarted":
                        yield _parse(event)


def _parse(event: dict[str, Any]) -> Request:
    target = event.get("objectRef", {})
    subresource = target.get("subresource")
    answered = event.get("stageTimestamp")
    return Request(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource=target.get("resource", "") + (f"/{subresource}" if subresource else ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        agent=event.get("userAgent", ""),
        group=target.get("apiGroup", ""),
        at=datetime.fromisoformat(answered).timestamp() if answered else 0.0,
    )
