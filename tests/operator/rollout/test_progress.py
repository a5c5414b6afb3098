from typing import Any

import pytest

from fakes.fake_cluster import ready_status
from yaie_api import names
from yaie_operator.reconcile.reasons import Reason
from yaie_operator.reconcile.rollout.progress import WORDS, Step, blocked_by, report, step_of

MIXED = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


def deployment(surge: int = 1, *, strategy: Any = None, **status: Any) -> dict[str, Any]:
    numbers = {"maxSurge": surge, "maxUnavailable": 1 - surge}
    rolling = {"type": "RollingUpdate", "rollingUpdate": numbers}
    return {
        "metadata": {"labels": {names.LABEL_TEMPLATE_HASH: "new"}, "generation": 1},
        "spec": {"replicas": 1, "strategy": strategy or rolling},
        "status": status,
    }


def pod(name: str, version: str = "new", **status: Any) -> dict[str, Any]:
    labels = {names.LABEL_TEMPLATE_HASH: version}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def waiting(reason: str) -> list[dict[str, Any]]:
    return [{"name": "engine", "image": "bad:1", "state": {"waiting": {"reason": reason}}}]


NO_NODE = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (deployment(**MIXED), Step.SURGING),
        (deployment(0, **MIXED), Step.REPLACING),
        (deployment(strategy={"type": "Recreate"}, **MIXED), Step.RECREATING),
        (deployment(**MIXED, conditions=[LATE]), Step.STOPPED),
        (deployment(replicas=1, updatedReplicas=1), Step.STARTING),
        (deployment(), Step.STARTING),
    ],
)
def test_a_step_is_what_kubernetes_does_with_the_engines(seen: Any, expected: Step) -> None:
    assert step_of(seen, is_complete=False) == expected
    assert step_of(seen, is_complete=True) == Step.COMPLETE


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod("a", conditions=[NO_NODE])], "unschedulable: Pod a waits for a node: 0/1 nodes"),
        ([pod("a", containerStatuses=waiting("ErrImagePull"))], "image pull: Pod a cannot get"),
        (
            [pod("a", containerStatuses=waiting("CreateContainerConfigError"))],
            "configuration: Pod a cannot start",
        ),
        ([pod("a", conditions=[{"type": "PodScheduled", "status": "True"}])], "readiness: Pod a"),
        ([pod("a", "old", conditions=[NO_NODE])], ""),
        ([], ""),
    ],
)
def test_what_blocks_is_told_of_new_engines_only(pods: list[Any], expected: str) -> None:
    assert blocked_by(deployment(**MIXED), pods).startswith(expected)
    assert bool(blocked_by(deployment(**MIXED), pods)) is bool(expected)


def test_a_failed_engine_is_told_in_its_own_sentence() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no such model"}}
    status = {"name": "engine", "state": {}, "lastState": ended, "restartCount": 2}
    told = blocked_by(deployment(), [pod("a", containerStatuses=[status])])
    assert told.startswith("engine failed: ")
    assert "no such model" in told


def test_a_refusal_of_the_api_server_is_told_first() -> None:
    refusal = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    assert blocked_by(deployment(conditions=[refusal]), []) == "refused: exceeded quota"


def test_every_diagnosis_of_a_pod_has_its_words() -> None:
    diagnoses = {
        Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED, Reason.CRASH_LOOP, Reason.CONFIG_ERROR,
        Reason.STARTING,
    }  # fmt: skip
    assert diagnoses <= WORDS.keys()


def test_a_complete_rollout_waits_for_nothing() -> None:
    seen = deployment() | {"status": {}}
    seen["status"] = ready_status(seen)
    assert report(seen, [pod("a", conditions=[NO_NODE])], is_complete=True) == {
        "hash": "new", "step": "Complete", "blockedBy": "",
    }  # fmt: skip
    assert report(None, [], is_complete=False) == {"hash": "", "step": "", "blockedBy": ""}
