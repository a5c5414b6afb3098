"""`yaie explain`: from a status, pods and Events to lines, by cases."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fakes.running_up import yaie
from yaie.cli.advice.explaining import observe
from yaie.cli.advice.explaining.explained import Explanation, Note, Seen, explain, lines
from yaie.cli.advice.explaining.next_step import Commands, next_steps
from yaie_operator.reconcile.reasons import Reason

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLUSTER = Commands("demo", "chat", is_local=False, flags=" --context staging")
LOCAL = Commands("demo", "default", is_local=True)


def ago(seconds: int) -> str:
    return datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str, message: str, age_s: int = 60) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": ago(age_s)}  # fmt: skip


def model(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    spec = {"model": {"source": "builtin://yaie-demo"}, "replicas": 2} | status.pop("spec", {})
    return {
        "metadata": {"name": "demo", "namespace": "chat", "generation": status.pop("gen", 1)},
        "spec": spec,
        "status": {"observedGeneration": 1, "phase": "Starting", "conditions": list(conditions),
                   "replicas": {"desired": 2, "ready": 0}} | status,
    }  # fmt: skip


def pod(name: str = "demo-1", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": ago(200)},
        "spec": {"nodeName": "node-a"},
        "status": {"phase": "Pending", "conditions": []} | status,
    }


def waiting_pod(name: str = "demo-1") -> dict[str, Any]:
    why = {"type": "PodScheduled", "status": "False", "message": "3 Insufficient nvidia.com/gpu."}
    return pod(name, conditions=[why])


def crashing_pod() -> dict[str, Any]:
    ended = {"reason": "Error", "exitCode": 1, "message": "This model does not fit."}
    container = {"name": "engine", "restartCount": 3, "state": {"waiting": {}},
                 "lastState": {"terminated": ended}}  # fmt: skip
    scheduled = {"type": "PodScheduled", "status": "True"}
    return pod(phase="Running", conditions=[scheduled], containerStatuses=[container])


def told(seen: Seen, commands: Commands = CLUSTER) -> Explanation:
    return explain(seen, commands, NOW.timestamp())


def text(seen: Seen, commands: Commands = CLUSTER) -> str:
    return "\n".join(lines(told(seen, commands), "the cluster"))


def test_what_is_awaited_stands_first_and_what_to_type_last() -> None:
    waits = condition("Ready", "False", "Unschedulable", "Pod demo-1 waits for a node.", 200)
    shown = text(Seen(model(waits), [waiting_pod()])).splitlines()
    assert shown[0] == "chat/demo on the cluster: Starting, 0 of 2 engines ready"
    assert shown[2] == "Not ready for 3m20s, Unschedulable: Pod demo-1 waits for a node."
    where = "-n chat --context staging"
    assert shown[-2:] == [
        "  kubectl describe pod demo-1 -n chat --context staging",
        f"  kubectl get inferencemodel demo -o yaml {where} | yaie plan -f - --context staging",
    ]


def test_the_table_of_reasons_says_what_to_do_where_there_is_a_kubectl() -> None:
    waits = Seen(model(condition("Ready", "False", "Unschedulable", "Pod demo-1 waits.")))
    assert "kubectl get nodes" in told(waits).remedy
    assert told(waits, LOCAL).remedy == ""
    ready = Seen(model(condition("Ready", "True", "AllReady", "All run.")))
    assert told(ready).remedy == ""


def test_each_engine_says_where_it_hangs_and_what_it_said() -> None:
    waits = condition("Ready", "False", "CrashLoop", "Pod demo-1 ended.")
    seen = Seen(model(waits), [crashing_pod(), waiting_pod("demo-2")], said={"demo-2": "weights"})
    first, second = told(seen).engines
    assert (first.state, first.restarts, first.node, first.age) == ("Running", 3, "node-a", "3m20s")
    assert "This model does not fit" in first.message
    assert second.said == "weights"
    shown = text(seen)
    assert "demo-1: Running for 3m20s, on node-a, restarted 3 times" in shown
    assert "it said last: weights" in shown
    assert told(seen).next == ("kubectl logs demo-1 --previous -n chat --context staging",)


def test_a_model_that_is_ready_awaits_nothing() -> None:
    ready = condition("Ready", "True", "AllReady", "Every engine and the router are ready.", 7200)
    seen = Seen(model(ready, phase="Ready", replicas={"desired": 2, "ready": 2}))
    assert told(seen).is_ready
    assert "Nothing is awaited (AllReady for 120m): Every engine" in text(seen)
    assert "Conditions:" not in text(seen)


def test_a_model_without_a_status_points_to_the_operator() -> None:
    bare = {**model(), "status": {}}
    assert told(Seen(bare)).reason == "NoStatus"
    assert told(Seen(bare)).next == ("yaie doctor -n chat --context staging",)
    assert "0 of" not in text(Seen(bare))


def test_a_status_of_an_older_spec_says_nothing_of_this_one() -> None:
    ready = condition("Ready", "True", "AllReady", "Every engine and the router are ready.")
    found = told(Seen(model(ready, gen=4)))
    assert (found.is_ready, found.reason) == (False, "NotSeen")
    assert "its status is of generation 1, the spec is of generation 4" in found.message


def test_replicas_by_load_tell_the_last_decisions() -> None:
    active = condition("ScalingActive", "True", "ByLoad", "Scales from 1 to 4 engines by load.")
    decision = {"time": ago(90), "from": 1, "to": 2, "reason": "Load",
                "message": "12 requests, 8 each."}  # fmt: skip
    seen = Seen(model(active, spec={"autoscaling": {"min": 1, "max": 4}},
                      scaling={"desired": 2, "lastDecisions": [decision]}))  # fmt: skip
    assert told(seen).notes[:2] == (
        Note("Replicas", "2 by load: Scales from 1 to 4 engines by load."),
        Note("  scaled", "90s ago 1 -> 2 (Load): 12 requests, 8 each."),
    )


def test_replicas_without_a_load_are_those_of_the_spec() -> None:
    assert told(Seen(model())).notes[0] == Note("Replicas", "2, as spec.replicas says")
    suspended = Seen(model(spec={"suspend": True}))
    assert told(suspended).notes[0] == Note("Replicas", "none, for spec.suspend is true")


def test_what_blocks_a_rollout_is_told() -> None:
    seen = Seen(model(rollout={"step": "Surging", "blockedBy": "Pod a waits for a node."}))
    assert Note("Rollout", "Surging, and waits: Pod a waits for a node.") in told(seen).notes
    moving = condition("Progressing", "True", "RollingOut", "1 of 2 engines updated.")
    assert Note("Rollout", "RollingOut: 1 of 2 engines updated.") in told(Seen(model(moving))).notes


def test_a_download_tells_how_far_it_is() -> None:
    cache = condition("CacheReady", "False", "Downloading", "The weights are being downloaded.")
    seen = Seen(model(cache, cache={"bytes": 10**9, "totalBytes": 4 * 10**9}))
    assert told(seen).notes[-1] == Note(
        "Cache",
        "Downloading: The weights are being downloaded. (1.00 GB of 4.00 GB)",
    )


def event(
    seconds: int, about: str, reason: str = "FailedScheduling", **more: Any
) -> dict[str, Any]:
    kind, _, name = about.partition("/")
    return {
        "metadata": {"name": f"{name}.{seconds}", "creationTimestamp": ago(seconds)},
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning", "reason": reason, "message": "no", "lastTimestamp": ago(seconds), **more,
    }  # fmt: skip


def test_the_newest_events_come_first_and_repeated_ones_once() -> None:
    events = [event(300, "Pod/demo-1"), event(20, "Pod/demo-1", count=7), event(60, "Pod/demo-2")]
    shown = [(e.ago, e.about, e.count) for e in told(Seen(model(), events=events)).events]
    assert shown == [("20s", "Pod/demo-1", 7), ("60s", "Pod/demo-2", 1)]


def test_events_of_the_new_kind_have_a_time_too() -> None:
    new = event(30, "Pod/demo-1") | {"lastTimestamp": None, "eventTime": ago(30)}
    assert told(Seen(model(), events=[new])).events[0].ago == "30s"


@pytest.mark.parametrize(
    ("about", "counts"),
    [("InferenceModel/demo", True), ("Deployment/demo", True), ("ReplicaSet/demo-5f6", True),
     ("ReplicaSet/demo-two-5f6", False), ("Pod/demo-1", True), ("Pod/demo-two-1", False),
     ("Deployment/demo-two", False)],
)  # fmt: skip
def test_events_of_another_model_do_not_count(about: str, counts: bool) -> None:
    assert observe.is_about(event(1, about), "demo", {"demo-1"}) is counts


@pytest.mark.parametrize("commands", [CLUSTER, LOCAL])
@pytest.mark.parametrize("reason", [*Reason, "NoStatus", "NotSeen", "SomethingNew"])
def test_every_reason_has_a_next_step(reason: str, commands: Commands) -> None:
    for step in next_steps(reason, commands, "demo-1"):
        assert step.startswith("yaie " if commands.is_local else ("kubectl ", "yaie "))
    assert next_steps(reason, commands, "")


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("", ""),
        ("first\nlast words\n\n", "last words"),
        ('{"message": "loading", "stage": "weights"}\n', "loading: weights"),
        ('{"message": "failed", "error": "no room"}', "failed: no room"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_the_last_sentence_of_a_log(log: str, sentence: str) -> None:
    assert observe.last_sentence(log) == sentence


def test_where_nothing_runs_both_ways_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = yaie("explain", "demo")
    assert done.returncode == 1
    assert "yaie up -f model.yaml, or name a cluster with --kubeconfig" in done.stderr
    both = yaie("explain", "demo", "--kubeconfig", "x", state=tmp_path)
    assert "--state-dir names a `yaie up`, --kubeconfig a cluster" in both.stderr
