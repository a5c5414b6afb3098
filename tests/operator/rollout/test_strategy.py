"""When `rollout.strategy: Auto` replaces engines in their places."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fakes.fake_cluster import inference_model, ready_status
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.rollout.strategy import Choice, choose
from yaie_operator.resources.engine import deployment, hash_of, strategy_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: not helpful."
GPU = {"gpu": {"count": 1}, "memory": "8Gi"}


def served(**spec: Any) -> ServedModel:
    obj = inference_model(**{"resources": GPU, **spec})
    obj["metadata"]["uid"] = "u"
    return ServedModel.parse(obj)


OLD = served()
NEW = served(engine={"maxNumSeqs": 8})


def live(model: ServedModel = NEW, *, in_place: bool = False, **status: Any) -> dict[str, Any]:
    made = dict(deployment(model, OperatorConfig(), observed=None, in_place=in_place))
    made["metadata"] = {**made["metadata"], "generation": 2}
    replicas = made["spec"]["replicas"]
    counts = {"replicas": replicas + 1, "updatedReplicas": 1, "readyReplicas": replicas}
    return made | {"status": {"observedGeneration": 2, **counts, **status}}


def pod(model: ServedModel, *, ago_s: float | None = None, why: str = NO_GPU, **spec: Any) -> Any:
    """A pod of a model's template. `ago_s`: since when it waits for a node; None: it has one."""
    template = deployment(model, OperatorConfig(), observed=None)["spec"]["template"]
    scheduled = {"type": "PodScheduled", "status": "True"}
    if ago_s is not None:
        since = (NOW - timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        scheduled = {"type": "PodScheduled", "status": "False", "message": why} | {
            "lastTransitionTime": since
        }
    metadata = {"name": f"demo-{hash_of(model)}", "labels": template["metadata"]["labels"]}
    return {
        "metadata": metadata,
        "spec": {**template["spec"], **spec},
        "status": {"conditions": [scheduled]},
    }


def test_a_new_engine_gets_thirty_seconds_to_find_room() -> None:
    assert choose(NEW, live(), [pod(OLD), pod(NEW, ago_s=10)], NOW) == Choice(again_s=20.0)
    assert choose(NEW, live(), [pod(OLD), pod(NEW, ago_s=30)], NOW) == Choice(in_place=True)


def test_once_in_place_the_rollout_stays_so_until_it_is_complete() -> None:
    """The new pod has found its place and fails: surging again would not help."""
    replacing = live(in_place=True)
    for pods in ([], [pod(NEW)], [pod(OLD), pod(NEW)], [pod(OLD), pod(NEW, ago_s=1)]):
        assert choose(NEW, replacing, pods, NOW) == Choice(in_place=True)
    done = replacing | {"status": ready_status(replacing)}
    assert choose(NEW, done, [pod(NEW)], NOW) == Choice()


def test_another_spec_begins_by_surging_again() -> None:
    replacing = live(OLD, in_place=True)
    assert choose(NEW, replacing, [pod(OLD, ago_s=60)], NOW) == Choice()


def test_without_old_engines_there_is_nothing_to_replace() -> None:
    """A first start, or more replicas than the cluster has room for."""
    assert choose(NEW, live(), [pod(NEW), pod(NEW, ago_s=60)], NOW) == Choice()
    leaving = pod(OLD)
    leaving["metadata"] = leaving["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert choose(NEW, live(), [leaving, pod(NEW, ago_s=60)], NOW) == Choice()


@pytest.mark.parametrize(
    "why",
    [
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        "0/1 nodes are available: 1 node(s) were unschedulable.",
        "",
    ],
)
def test_no_engine_stops_for_a_pod_that_its_place_would_not_help(why: str) -> None:
    assert choose(NEW, live(), [pod(OLD), pod(NEW, ago_s=60, why=why)], NOW) == Choice()


@pytest.mark.parametrize(
    "resources",
    [
        {"memory": "16Gi"},
        {"cpu": "1"},
        {"nodeSelector": {"gpu": "other"}},
        {"runtimeClassName": "nvidia"},
    ],
)
def test_no_engine_stops_for_one_that_asks_for_more_or_for_another_node(
    resources: dict[str, Any],
) -> None:
    more = served(resources=GPU | resources)
    assert choose(more, live(more), [pod(OLD), pod(more, ago_s=60)], NOW) == Choice()


def test_one_that_asks_for_less_fits() -> None:
    less = served(resources=GPU | {"memory": "4096Mi"})
    assert choose(less, live(less), [pod(OLD), pod(less, ago_s=60)], NOW).in_place


def test_a_volume_of_its_own_may_be_elsewhere() -> None:
    claim = {"source": "pvc://other/model"}
    moved = served(model=claim)
    assert choose(moved, live(moved), [pod(OLD), pod(moved, ago_s=60)], NOW) == Choice()


def test_tolerations_that_the_api_server_adds_do_not_count() -> None:
    added = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    assert choose(NEW, live(), [pod(OLD, tolerations=added), pod(NEW, ago_s=60)], NOW).in_place
    own = [{"key": "gpu", "operator": "Exists"}]
    assert not choose(NEW, live(), [pod(OLD, tolerations=own), pod(NEW, ago_s=60)], NOW).in_place


def test_a_quota_that_is_used_up_is_no_room_too() -> None:
    refused = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": 'pods "demo-x" is forbidden: exceeded quota: gpus',
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }
    assert choose(NEW, live(conditions=[refused]), [pod(OLD)], NOW).in_place


def test_a_restart_by_kubectl_is_a_rollout_too() -> None:
    restarting = live()
    template = restarting["spec"]["template"]
    stamp = {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T11:59:00Z"}}
    template["metadata"] = template["metadata"] | stamp
    new = pod(NEW, ago_s=60)
    new["metadata"] = new["metadata"] | stamp
    assert choose(NEW, restarting, [pod(NEW), new], NOW).in_place


@pytest.mark.parametrize(
    "rollout",
    [{"strategy": "Surge"}, {"strategy": "Recreate"}, {"maxSurge": 0, "maxUnavailable": 1}],
)
def test_only_auto_with_a_surge_changes_its_mind(rollout: dict[str, Any]) -> None:
    fixed = served(engine={"maxNumSeqs": 8}, rollout=rollout)
    assert choose(fixed, live(fixed), [pod(OLD), pod(fixed, ago_s=60)], NOW) == Choice()


def test_before_the_first_write_there_is_nothing_to_decide() -> None:
    assert choose(NEW, None, [], NOW) == Choice()


@pytest.mark.parametrize(
    ("rollout", "in_place", "expected"),
    [
        ({}, False, (1, 0)),
        ({}, True, (0, 1)),
        ({"maxSurge": 3, "maxUnavailable": 2}, False, (3, 2)),
        ({"strategy": "Surge", "maxSurge": 2}, False, (2, 0)),
    ],
)
def test_kubernetes_is_told_how_many(
    rollout: dict[str, Any], in_place: bool, expected: tuple[int, int]
) -> None:
    told = strategy_of(served(rollout=rollout).spec.rollout, in_place=in_place)
    numbers = told["rollingUpdate"]
    assert (numbers["maxSurge"], numbers["maxUnavailable"]) == expected


def test_recreate_has_no_numbers() -> None:
    made = deployment(served(rollout={"strategy": "Recreate"}), OperatorConfig(), observed=None)
    assert made["spec"]["strategy"] == {"type": "Recreate"}


def test_how_engines_are_replaced_does_not_replace_them() -> None:
    assert hash_of(served(rollout={"strategy": "Recreate"})) == hash_of(OLD)
    assert names.LABEL_TEMPLATE_HASH in live()["metadata"]["labels"]
