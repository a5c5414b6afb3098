"""What a client that waits is told about the start of an engine."""

from typing import Any

import pytest

from yaie_operator.reconcile.pods import diagnose
from yaie_router.discovery.stages import NOT_STARTED, stage_of


def status(**condition: str) -> dict[str, Any]:
    accepted = {"type": "Accepted", "status": "True", "reason": "Valid"}
    return {"conditions": [accepted, {"type": "EnginesReady", "status": "False"} | condition]}


def pod(waiting: str = "", **conditions: str) -> dict[str, Any]:
    told = [{"type": kind, "status": value} for kind, value in conditions.items()]
    containers = [{"name": "engine", "state": {"waiting": {"reason": waiting}}}] if waiting else []
    return {
        "metadata": {"name": "demo-1"},
        "status": {"conditions": told, "containerStatuses": containers},
    }


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        (pod(), "waiting for a pod to be scheduled"),
        (pod(PodScheduled="False"), "waiting for a node with room"),
        (pod("ContainerCreating", PodScheduled="True"), "pulling the image"),
        (pod(PodScheduled="True"), "loading weights"),
        (pod(PodScheduled="True", ContainersReady="True"), "connecting to the engine"),
        (pod("ImagePullBackOff"), "an engine cannot start yet (ImagePullFailed)"),
    ],
)
def test_what_the_operator_says_of_a_pod_is_a_stage(seen: dict[str, Any], stage: str) -> None:
    found = diagnose(seen)
    assert stage_of(status(reason=str(found.reason), message=found.message)) == stage


@pytest.mark.parametrize(
    ("given", "stage"),
    [
        ({}, NOT_STARTED),
        (status(status="True", reason="Idle"), NOT_STARTED),
        (status(status="True", reason="AllReady"), NOT_STARTED),
        (status(reason="Creating"), "starting an engine"),
        (status(), "starting an engine"),
        (
            {"conditions": [{"type": "CacheReady", "status": "False", "reason": "Downloading"}]},
            "downloading weights",
        ),
    ],
)
def test_a_status_without_a_pod_has_a_stage_too(given: dict[str, Any], stage: str) -> None:
    assert stage_of(given) == stage


def test_no_pod_and_no_node_is_named() -> None:
    found = diagnose(pod(PodScheduled="False"))
    assert "demo-1" in found.message
    assert "demo-1" not in stage_of(status(reason=str(found.reason), message=found.message))
