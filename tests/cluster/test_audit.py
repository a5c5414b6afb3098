"""The audit log is read as writes, Leases apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.audit import AuditLog


def event(verb: str, resource: str, user: str = "someone", **target: str) -> dict[str, Any]:
    return {
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "namespace": "default", "name": "it", **target},
        "responseStatus": {"code": 200},
        "userAgent": "test",
    }


def log(path: Path, *events: dict[str, Any]) -> AuditLog:
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)
    return AuditLog(path)


def test_a_log_that_does_not_exist_yet_begins_at_zero(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "audit.log").mark() == 0


def test_only_writes_after_the_mark_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    mark = log(path, event("create", "pods")).mark()
    written = log(path, event("patch", "inferencemodels", subresource="status"))
    assert [write.resource for write in written.writes_since(mark)] == ["inferencemodels/status"]


def test_leases_and_other_users_are_left_out(tmp_path: Path) -> None:
    audit = log(
        tmp_path / "audit.log", event("update", "leases", "us"), event("create", "pods", "them")
    )
    assert audit.writes_since(0, user="us") == []
    assert len(audit.writes_since(0, user="us", leases=True)) == 1


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = log(path, event("create", "pods"))
    with path.open("a") as file:
        file.write('{"verb": "cre')
    assert len(audit.writes_since(0)) == 1


@pytest.mark.parametrize("length", [10, 4095, 4096, 4097, 20000])
def test_a_mark_beside_a_line_that_is_being_written_keeps_that_line(
    length: int, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    log(path, event("create", "pods"))
    begun = json.dumps(event("create", "services", name="x" * length))
    with path.open("a") as file:
        file.write(begun[: len(begun) - 5])
    mark = AuditLog(path).mark()
    with path.open("a") as file:
        file.write(begun[len(begun) - 5 :] + "\n")
    assert [write.resource for write in AuditLog(path).writes_since(mark)] == ["services"]


def test_a_mark_in_a_first_line_that_is_being_written_is_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"verb": "cre')
    assert AuditLog(path).mark() == 0
