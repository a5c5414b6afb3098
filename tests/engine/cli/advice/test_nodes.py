"""Which nodes have room for an engine, and whether a rollout has a spare place: by cases."""

from typing import Any

import pytest

from yaie.cli.advice.planning import nodes
from yaie.cli.advice.planning.nodes import GPU, Seat

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(name: str = "a", gpus: int = 1, **more: Any) -> dict[str, Any]:
    labels = {nodes.GPU_PRODUCT: "NVIDIA-L4", nodes.GPU_MEMORY: "23034"} if gpus else {}
    allocatable = {"cpu": "8", "memory": "32Gi"} | ({GPU: str(gpus)} if gpus else {})
    return {
        "metadata": {"name": name, "labels": labels | more.pop("labels", {})},
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": allocatable | more.pop("allocatable", {}),
            "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}],
        },
    }


def pod(gpus: int = 1, at: str = "", **more: Any) -> dict[str, Any]:
    """The spec of a pod that asks for GPUs, 2 CPUs and 8 GiB."""
    asked = {"cpu": "2", "memory": "8Gi"} | ({GPU: str(gpus)} if gpus else {})
    container = {"resources": {"limits": {k: v for k, v in asked.items() if k == GPU},
                               "requests": asked}}  # fmt: skip
    return {"containers": [container], **({"nodeName": at} if at else {}), **more}


def running(*specs: dict[str, Any], phase: str = "Running") -> list[dict[str, Any]]:
    return [{"spec": spec, "status": {"phase": phase}} for spec in specs]


def seat(one: dict[str, Any], spec: dict[str, Any], *others: dict[str, Any]) -> Seat:
    (found,) = nodes.seats([one], running(*others), spec)
    return found


def test_an_empty_node_has_room_for_as_many_as_it_has_gpus() -> None:
    found = seat(node(gpus=4), pod())
    assert (found.places, found.free_gpus, found.why) == (4, 4, "")
    assert found.gpu_memory_bytes == 23034 * 2**20


def test_what_runs_there_takes_its_gpus() -> None:
    found = seat(node(gpus=2), pod(), pod(at="a"), pod(at="b"))
    assert (found.places, found.free_gpus) == (1, 1)
    full = seat(node(gpus=1), pod(), pod(at="a"))
    assert (full.places, full.why, full.matches) == (0, "no room: GPUs in use", True)


def test_pods_that_ended_take_nothing() -> None:
    ended = running(pod(at="a"), phase="Succeeded")
    (found,) = nodes.seats([node()], ended, pod())
    assert found.places == 1


def test_memory_and_cpu_count_too() -> None:
    assert seat(node(gpus=8), pod()).places == 4  # 8 CPUs, of which each takes 2
    (found,) = nodes.seats([node(gpus=8)], running(pod(0, at="a")), pod())
    assert found.places == 3


@pytest.mark.parametrize(
    ("one", "asks", "why"),
    [
        (node(gpus=0), pod(), "it has no GPU"),
        (node(allocatable={"memory": "4Gi"}), pod(), "it has too little: memory 4.0Gi of 8.0Gi"),
        (node(spec={"unschedulable": True}), pod(), "it is cordoned"),
        (node(ready="False"), pod(), "it is not ready"),
        (node(spec={"taints": [TAINT]}), pod(),
         "its taint nvidia.com/gpu=present:NoSchedule is not tolerated"),
        (node(), pod(nodeSelector={"zone": "b"}),
         "its label zone is missing, the model asks for b"),
        (node(labels={"zone": "a"}), pod(nodeSelector={"zone": "b"}),
         "its label zone is a, the model asks for b"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_match_says_why(
    one: dict[str, Any], asks: dict[str, Any], why: str
) -> None:
    found = seat(one, asks)
    assert (found.places, found.why, found.matches) == (0, why, False)


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
    ],
)
def test_a_tolerated_taint_is_no_obstacle(toleration: dict[str, str]) -> None:
    assert seat(node(spec={"taints": [TAINT]}), pod(tolerations=[toleration])).places == 1


def test_a_toleration_of_another_value_does_not_help() -> None:
    other = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"}
    assert seat(node(spec={"taints": [TAINT]}), pod(tolerations=[other])).places == 0


def test_a_preference_is_no_obstacle() -> None:
    taint = TAINT | {"effect": "PreferNoSchedule"}
    assert seat(node(spec={"taints": [taint]}), pod()).places == 1


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["20000"]}, True),
        ({"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": ["20000"]}, False),
        ({"key": "none", "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_required_node_affinity_decides(expression: dict[str, Any], matches: bool) -> None:
    term = {"matchExpressions": [expression]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    found = seat(node(labels={"zone": "a"}), pod(affinity={"nodeAffinity": required}))
    assert found.places == int(matches)


def test_what_is_in_use_may_be_unknown() -> None:
    (found,) = nodes.seats([node(gpus=2)], None, pod())
    assert (found.places, found.free_gpus) == (2, None)


@pytest.mark.parametrize(
    ("places", "running", "strategy", "max_surge", "words"),
    [
        (1, 2, "Auto", 1, "A rollout has a spare place"),
        (2, 1, "Surge", 1, "A rollout has a spare place"),
        (0, 2, "Surge", 1, "would wait for one. Write rollout.strategy: Auto"),
        (1, 1, "Auto", 1, "no spare place: engines are replaced one by one in their places"),
        (0, 2, "Auto", 0, "in their places: one engine less serves meanwhile"),
        (9, 2, "Recreate", 1, "stops every engine before it starts new ones"),
        (1, 0, "Auto", 1, "2 engines to start, room for 1: the rest waits"),
    ],
)
def test_a_rollout_needs_a_place_beyond_those_that_are_wanted(
    places: int, running: int, strategy: str, max_surge: int, words: str
) -> None:
    told = nodes.rollout(places, wanted=2, running=running, strategy=strategy, max_surge=max_surge)
    assert words in told


def test_the_only_engine_leaves_nothing_to_serve_while_it_is_replaced() -> None:
    told = nodes.rollout(0, wanted=1, running=1, strategy="Auto", max_surge=1)
    assert "nothing is served meanwhile" in told
