"""Who set a model's replicas, and how the status names them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from yaie_operator.autoscaling import record
from yaie_operator.autoscaling.history import Engines

REPLICAS = {"f:spec": {"f:replicas": {}}}


def model(*entries: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    fields = [{"manager": who, "time": at, "fieldsV1": what} for who, at, what in entries]
    return {"metadata": {"managedFields": fields}}


def test_the_writer_of_replicas_is_the_last_manager_of_that_field() -> None:
    found = model(
        ("yaie-autoscaler", "2026-01-01T00:00:00Z", REPLICAS),
        ("kubectl", "2026-01-01T00:00:05Z", REPLICAS),
        ("helm", "2026-01-01T00:00:09Z", {"f:spec": {"f:engine": {}}}),
    )
    assert record.writer(found) == "kubectl"


@pytest.mark.parametrize("found", [{"metadata": {}}, model(("helm", "", {"f:metadata": {}}))])
def test_without_the_field_nobody_knows_the_writer(found: dict[str, Any]) -> None:
    assert record.writer(found) == ""


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("", "Another writer set spec.replicas from 4 to 2."),
        ("kubectl", "Another writer (kubectl) set spec.replicas from 4 to 2."),
        (
            "kube-controller-manager",
            "Another autoscaler (kube-controller-manager) set spec.replicas from 4 to 2.",
        ),
    ],
)
def test_an_override_names_its_writer(by: str, told: str) -> None:
    entry = record.overridden(4, Engines(2, 2), None, datetime(2026, 1, 1, tzinfo=UTC), by)
    assert entry["message"] == told
