import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.fake_cluster import endpoint_slice, inference_model
from yaie_api import names
from yaie_api.resource.crd import root_schema
from yaie_api.resource.model import InferenceModelStatus
from yaie_local.apiserver.admission import Admission
from yaie_local.apiserver.schema import unknown_fields
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.observe import ModelView, Ref, SharedView
from yaie_operator.reconcile.pods import diagnose, worst
from yaie_operator.reconcile.reasons import ConditionState, ConditionType, Reason, false, true
from yaie_operator.reconcile.status import Transition, flips, summarise

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALID = true(Reason.VALID, "The spec is valid.")
READY = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
SEEN = {"observedGeneration": 1}
UNREADY = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}


def owned(kind: str, name: str, owner: str, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"{kind}-{name}", "generation": 1}
    return {"kind": kind, "metadata": metadata | {"ownerReferences": [{"uid": owner}]}, **rest}


def view(
    *, engines: dict[str, Any] | None = None, router: bool = True, pods: tuple[Any, ...] = (),
    status: dict[str, Any] | None = None, reached: int | None = None, **spec: Any,
) -> ModelView:  # fmt: skip
    """A model with its Deployment in state `engines` and, where asked, a working router. `reached`:
    engines that the Service leads to; None: every ready one.
    """
    model = inference_model(**spec)
    model["metadata"] |= {"uid": "u", "generation": 3}
    if status is not None:
        model["status"] = status
    available = {"availableReplicas": 1} if router else {}
    deployment = owned("Deployment", names.ROUTER, "nobody", status=available)
    deployment["metadata"]["labels"] = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    shared = [deployment]
    objects = (
        [owned("Deployment", "demo", "u", status=engines, spec={})] if engines is not None else []
    )
    ready = (engines or {}).get("readyReplicas", 0) if reached is None else reached
    return ModelView(
        model=model,
        objects={Ref.of(o): o for o in objects},
        pods=pods,
        slices=(endpoint_slice("demo", (f"demo-{number}" for number in range(ready))),),
        shared=SharedView(
            "ns",
            (model,),
            {Ref.of(o): o for o in shared},
            slices=(endpoint_slice(names.ROUTER, ["router-1"]),) if router else (),
        ),
    )


def status_of(
    seen: ModelView, accepted: ConditionState = VALID, now: datetime = NOW
) -> dict[str, Any]:
    spec = ServedModel.parse(seen.model).spec if accepted.reason != Reason.INVALID_SPEC else None
    return summarise(seen, spec, accepted, OperatorConfig(), now)


def conditions(seen: ModelView, accepted: ConditionState = VALID) -> dict[str, tuple[str, str]]:
    found = status_of(seen, accepted)["conditions"]
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def pod(name: str = "demo-1", **status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "status": status}


def waiting(reason: str, message: str = "", **container: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    return pod(
        conditions=scheduled,
        containerStatuses=[{"name": "engine", "image": "engine:1", "state": state, **container}],
    )


UNSCHEDULABLE = pod(
    conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: no GPU"}]
)
STARTING = pod(conditions=[{"type": "PodScheduled", "status": "True"}])
CRASHED = waiting(
    "CrashLoopBackOff",
    restartCount=3,
    lastState={"terminated": {"exitCode": 1, "reason": "Error", "message": "a\nno such model\n"}},
)


@pytest.mark.parametrize(
    ("seen", "phase", "ready"),
    [
        (view(), "Starting", ("False", "Creating")),
        (view(engines={}), "Starting", ("False", "Creating")),
        (view(engines=UNREADY), "Starting", ("False", "Starting")),
        (view(engines=UNREADY, pods=(UNSCHEDULABLE,)), "Starting", ("False", "Unschedulable")),
        (view(engines=UNREADY, pods=(CRASHED,)), "Failed", ("False", "CrashLoop")),
        (view(engines=READY), "Ready", ("True", "AllReady")),
        (view(engines=READY, router=False), "Degraded", ("False", "Starting")),
        (view(engines=READY, replicas=2), "Updating", ("False", "Starting")),
        (view(engines=READY | {"replicas": 2}), "Updating", ("False", "Draining")),
        (view(engines=READY | {"updatedReplicas": 0}), "Updating", ("False", "Draining")),
        (view(engines=SEEN, replicas=0), "Idle", ("True", "Idle")),
        (view(engines=SEEN, suspend=True), "Suspended", ("False", "Suspended")),
    ],
)  # fmt: skip
def test_phase_and_ready_follow_the_engines_and_the_router(
    seen: ModelView, phase: str, ready: tuple[str, str]
) -> None:
    assert status_of(seen)["phase"] == phase
    assert conditions(seen)["Ready"] == ready


def test_every_condition_is_told_from_the_first_report_on() -> None:
    where_asked = {ConditionType.SCALING_ACTIVE, ConditionType.CACHE_READY}
    always = [kind.value for kind in ConditionType if kind not in where_asked]
    assert list(conditions(view())) == always


def test_one_ready_engine_of_two_is_available_but_not_ready() -> None:
    found = conditions(view(engines=READY | {"replicas": 2, "updatedReplicas": 2}, replicas=2))
    assert found["Available"] == ("True", "Reachable")
    assert found["Ready"][0] == "False"


def test_no_engine_can_be_reached_without_a_router() -> None:
    assert conditions(view(engines=READY, router=False))["Available"] == ("False", "NoRouter")


def test_engines_that_the_service_does_not_lead_to_are_not_ready_to_anybody() -> None:
    found = conditions(view(engines=READY, reached=0))
    assert found["EnginesReady"] == found["Available"] == found["Ready"] == ("False", "NoEndpoint")
    (message,) = (c["message"] for c in status_of(view(engines=READY, reached=0))["conditions"]
                  if c["type"] == "Ready")  # fmt: skip
    assert "1 engine is ready, but Service demo leads to 0; wait" in message


def test_one_reached_engine_of_two_is_available_but_not_ready() -> None:
    two = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), 2)
    found = conditions(view(engines=READY | two, replicas=2, reached=1))
    assert found["Available"] == ("True", "Reachable")
    assert found["Ready"] == ("False", "NoEndpoint")


def test_a_router_that_its_service_does_not_lead_to_is_not_ready() -> None:
    seen = view(engines=READY)
    seen = replace(seen, shared=replace(seen.shared, slices=()))
    found = conditions(seen)
    assert found["RouterReady"] == found["Ready"] == ("False", "NoEndpoint")
    assert found["Available"] == ("False", "NoRouter")


def test_a_stuck_rollout_says_which_field_set_the_deadline() -> None:
    stuck = UNREADY | {
        "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
        ]
    }
    seen = view(engines=stuck)
    assert conditions(seen)["Progressing"] == ("False", "DeadlineExceeded")
    message = next(c for c in status_of(seen)["conditions"] if c["type"] == "Progressing")
    assert "rollout.progressDeadlineSeconds" in message["message"]
    assert "earlier" not in message["message"]


def test_a_new_version_that_fails_says_that_the_old_one_serves_and_how_to_go_back() -> None:
    mixed = READY | {"replicas": 2}
    for seen in (
        view(engines=mixed, pods=(CRASHED,)),
        view(engines=mixed | {"conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
        ]}),
    ):  # fmt: skip
        status = status_of(seen)
        message = next(c["message"] for c in status["conditions"] if c["type"] == "Progressing")
        assert message.endswith(
            "1 engine of the earlier spec keeps serving. To go back, apply the earlier spec of "
            "demo again."
        )
        assert next(c for c in status["conditions"] if c["type"] == "Available")["status"] == "True"


def test_a_quota_that_forbids_pods_is_told() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    seen = view(engines={"observedGeneration": 1, "conditions": [failure]})
    found = next(c for c in status_of(seen)["conditions"] if c["type"] == "EnginesReady")
    assert found["reason"] == "ConfigError"
    assert "exceeded quota" in found["message"]


def test_a_spec_that_is_not_accepted_is_not_ready_for_that_reason() -> None:
    refused = false(Reason.NAME_CONFLICT, "Service demo belongs to somebody else")
    found = conditions(view(), refused)
    assert found["Accepted"] == found["Ready"] == ("False", "NameConflict")
    assert status_of(view(), refused)["phase"] == "Invalid"


def test_counts_and_columns_come_from_the_deployment_and_its_pods() -> None:
    leaving = pod("demo-0")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = status_of(view(engines=READY, pods=(leaving,), replicas=2))
    assert found["replicas"] == {
        "desired": 2, "current": 1, "updated": 1, "ready": 1, "draining": 1,
    }  # fmt: skip
    assert found["ready"] == "1/2"
    assert found["observedGeneration"] == 3
    assert found["selector"] == "yaie.dev/model=demo,yaie.dev/component=engine"


def test_a_foreign_deployment_is_not_counted() -> None:
    seen = view(engines=READY)
    ref = Ref("Deployment", "ns", "demo")
    seen.objects[ref]["metadata"]["ownerReferences"][0]["uid"] = "other"
    assert status_of(seen)["ready"] == "0/1"


def test_the_same_view_gives_the_same_status_whatever_the_time() -> None:
    first = status_of(view(engines=READY))
    later = datetime(2026, 1, 2, tzinfo=UTC)
    assert status_of(view(engines=READY, status=first), now=later) == first


def test_a_transition_time_moves_with_its_own_status_only() -> None:
    first = status_of(view(engines=READY))
    later = datetime(2026, 1, 2, tzinfo=UTC)
    second = status_of(view(engines=UNREADY, status=first), now=later)
    moved = {
        new["type"]
        for old, new in zip(first["conditions"], second["conditions"], strict=True)
        if old["lastTransitionTime"] != new["lastTransitionTime"]
    }
    assert moved == {"EnginesReady", "Progressing", "Available", "Ready"}


def test_flips_are_what_changed_since_the_stored_status() -> None:
    first = status_of(view(engines=UNREADY))
    assert flips(view().model, first) == ()
    stored = view(engines=READY, status=first)
    found = {flip.type: flip for flip in flips(stored.model, status_of(stored))}
    assert set(found) == {"EnginesReady", "Progressing", "Available", "Ready"}
    assert not any(flip.is_warning for flip in found.values())


def test_a_model_that_is_not_accepted_at_first_sight_is_a_flip_and_a_warning() -> None:
    refused = false(Reason.NAME_CONFLICT, "x")
    found = flips(view().model, status_of(view(), refused))
    assert found == (Transition(ConditionType.ACCEPTED, refused),)
    assert found[0].is_warning


def test_engines_that_begin_to_fail_are_told_once_and_in_their_own_words() -> None:
    """EnginesReady was false before, while they started: no status flips."""
    starting = status_of(view(engines=UNREADY, pods=(STARTING,)))
    failing = view(engines=UNREADY, pods=(CRASHED,), status=starting)
    (event,) = flips(failing.model, status_of(failing))
    assert (event.type, event.condition.reason) == ("EnginesReady", Reason.CRASH_LOOP)
    assert "no such model" in event.condition.message
    assert event.is_warning
    still = view(engines=UNREADY, pods=(CRASHED,), status=status_of(failing))
    assert flips(still.model, status_of(still)) == ()


def test_every_status_fits_the_crd() -> None:
    schema = root_schema()["properties"]["status"]
    for seen in (view(), view(engines=READY), view(engines=UNREADY, pods=(CRASHED,))):
        status = status_of(seen)
        InferenceModelStatus.model_validate(status)
        assert list(unknown_fields(schema, status)) == []
        model = seen.model | {"status": json.loads(json.dumps(status))}
        assert Admission({"spec": {"versions": [_version()]}}).violations(model) == []


def _version() -> dict[str, Any]:
    return {"schema": {"openAPIV3Schema": root_schema()}}


OF_VOLUME = 'Back-off pulling image "r.example.com/weights:1": ErrImagePull: not found'
RUNTIME = (
    f'failed to generate container "{"5f" * 32}" spec: failed to generate spec: '
    'failed to mkdir "": mkdir : no such file or directory'
)
DENIED = (
    'failed to resolve reference "r.example.com/engine:1": pull access denied, repository does not '
    "exist or may require authorization: authorization failed: no basic auth credentials"
)


@pytest.mark.parametrize(
    ("seen", "reason", "told"),
    [
        (UNSCHEDULABLE, Reason.UNSCHEDULABLE, "0/1 nodes: no GPU"),
        (pod(), Reason.STARTING, "waits for the scheduler"),
        (STARTING, Reason.STARTING, "loads the model"),
        (waiting("ImagePullBackOff"), Reason.IMAGE_PULL_FAILED, "engine:1"),
        (waiting("ErrImagePull", DENIED), Reason.IMAGE_PULL_FAILED, "podTemplate.spec.imagePull"),
        (waiting("ImagePullBackOff", OF_VOLUME), Reason.IMAGE_PULL_FAILED, "r.example.com/we"),
        (waiting("ErrImageNeverPull"), Reason.IMAGE_PULL_FAILED, "load it on the node"),
        (waiting("CreateContainerConfigError", 'secret "hf" not found'), Reason.CONFIG_ERROR, "hf"),
        (CRASHED, Reason.CRASH_LOOP, "no such model (see `kubectl logs demo-1 -c"),
        (waiting("ContainerCreating"), Reason.STARTING, "pulls its image"),
    ],
)  # fmt: skip
def test_a_pod_that_is_not_ready_says_why_and_what_to_do(
    seen: dict[str, Any], reason: Reason, told: str
) -> None:
    finding = diagnose(seen)
    assert finding.reason == reason
    assert told in finding.message


def test_a_runtime_that_mounts_no_images_is_named_and_no_container_id_makes_another_message() -> (
    None
):
    failing = waiting("CreateContainerError", RUNTIME)
    assert "5f5f" not in diagnose(failing).message
    failing["spec"] = {"volumes": [{"name": "model", "image": {"reference": "weights:1"}}]}
    assert diagnose(failing).message == (
        "Pod demo-1 cannot start: the container runtime of its node mounts no images as volumes; "
        "update it (containerd 2.1, CRI-O 1.31 or newer), or take the weights from another source, "
        "with cache.mode: pvc."
    )


def test_a_pod_whose_first_crash_just_happened_is_not_called_a_loop_before_its_restart() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    first = pod(containerStatuses=[{"name": "engine", "state": ended, "restartCount": 0}])
    assert diagnose(first).reason == Reason.STARTING


def crashed(message: str) -> dict[str, Any]:
    """A pod that was restarted after an end with this termination message."""
    again: dict[str, Any] = json.loads(json.dumps(CRASHED))
    again["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = message
    return again


def logged(level: str, message: str, **keys: str) -> str:
    return json.dumps({"time": "…", "level": level, "message": message, **keys})


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("There is no model folder at '/a'.", "There is no model folder at '/a'"),
        (logged("error", "stopping", error="no such folder"), "no such folder"),
        (logged("critical", "engine failed", reason="pickled weights"), "pickled weights"),
        (logged("critical", "engine failed", exception="Trace\nKeyError: 'a'"), "KeyError: 'a'"),
        (logged("error", "out of memory"), "out of memory"),
        (logged("error", "no disk") + "\n" + logged("info", "stopped"), "no disk"),
        (logged("error", "no disk") + "\nUserWarning: leaked semaphores", "no disk"),
        ("yaie serve: unknown argument --x\nSee yaie serve --help\n", "unknown argument --x"),
        ("usage: router [-h]\nrouter: error: unrecognized arguments: -x", "arguments: -x"),
        ("before\nKilled", "Killed"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_a_crash_is_told_in_the_sentence_of_the_process_or_its_last_error(
    message: str, told: str
) -> None:
    assert f"{told} (see" in diagnose(crashed(message)).message


@pytest.mark.parametrize("message", ["", "See yaie serve --help", logged("info", "loading")])
def test_what_does_not_explain_a_crash_is_not_told_as_its_reason(message: str) -> None:
    assert "and is restarted; see `kubectl logs" in diagnose(crashed(message)).message


def test_a_message_does_not_change_with_each_restart() -> None:
    fourth = json.loads(json.dumps(CRASHED))
    fourth["status"]["containerStatuses"][0]["restartCount"] = 4
    assert diagnose(fourth) == diagnose(CRASHED)


def test_the_most_urgent_trouble_is_told_and_ready_or_leaving_pods_have_none() -> None:
    ready = pod("demo-2", conditions=[{"type": "Ready", "status": "True"}])
    leaving = json.loads(json.dumps(CRASHED))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = worst((ready, UNSCHEDULABLE, CRASHED))
    assert found is not None
    assert found.reason == Reason.CRASH_LOOP
    assert worst((ready, leaving)) is None


def test_a_refused_router_is_told_in_the_api_servers_words() -> None:
    seen = view(engines=READY)
    seen = replace(seen, shared=replace(seen.shared, refusal="no rights"))
    assert conditions(seen)["RouterReady"] == ("False", "Refused")
