"""The tables of conditions and reasons are complete, and each message says what to do."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import endpoint_slice, inference_model
from yaie_api import names
from yaie_api.download.messages import Result
from yaie_operator.autoscaling import record
from yaie_operator.autoscaling.decision import Decision, Why
from yaie_operator.autoscaling.history import Policy
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.cache.weights import Weights, decide
from yaie_operator.reconcile.observe import ModelView, Ref, SharedView
from yaie_operator.reconcile.pods import diagnose
from yaie_operator.reconcile.reasons import GUIDE, TYPES, ConditionState, ConditionType, Reason
from yaie_operator.reconcile.reconciler import (
    name_taken,
    refused,
    understand,
    without_image_volumes,
)
from yaie_operator.reconcile.refusals import explain
from yaie_operator.reconcile.status import name_conflict, summarise
from yaie_operator.resources.weights import key_of

SOURCES = Path(__file__).parents[2] / "operator" / "yaie_operator"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADVICE = re.compile(
    r"[;:(] ?((then )?wait|look again|correct|delete|choose|set|change|create|load|free|see|raise|"
    r"leave|write|remove)\b"
)


def test_every_condition_and_reason_is_explained_in_its_order() -> None:
    assert list(TYPES) == list(ConditionType)
    assert list(GUIDE) == list(Reason)
    assert all(guide.meaning and guide.remedy for guide in GUIDE.values())


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_given_by_some_code(reason: Reason) -> None:
    users = (path for path in SOURCES.rglob("*.py") if path.name != "reasons.py")
    assert any(f"Reason.{reason.name}" in path.read_text() for path in users)


def _model(**spec: Any) -> dict[str, Any]:
    model = inference_model(**spec)
    model["metadata"] |= {"uid": "u", "generation": 1}
    return model


def _view(
    engines: dict[str, Any] | None,
    router: dict[str, Any] | None,
    *,
    reached: bool = True,
    **spec: Any,
) -> ModelView:
    shared = {} if router is None else {Ref("Deployment", "ns", names.ROUTER): router}
    own = {} if engines is None else {Ref("Deployment", "ns", "demo"): engines}
    model = _model(**spec)
    ready = (own[ref].get("status", {}).get("readyReplicas", 0) for ref in own)
    engine_pods = (f"demo-{number}" for number in range(max(ready, default=0)))
    slices = (endpoint_slice("demo", engine_pods),) if reached else ()
    of_router = (endpoint_slice(names.ROUTER, ["router-1"]),)
    shared_view = SharedView("ns", (model,), shared, slices=of_router)
    return ModelView(model, own, (), shared_view, slices=slices)


def _deployment(name: str, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    metadata = {"name": name, "generation": 1, "labels": labels, "ownerReferences": [{"uid": "u"}]}
    full = {"observedGeneration": 1, "conditions": list(conditions), **status}
    return {"kind": "Deployment", "metadata": metadata, "spec": {}, "status": full}


def _said(view: ModelView) -> list[ConditionState]:
    spec = ServedModel.parse(view.model).spec
    accepted = understand(view.model)[1]
    status = summarise(view, spec, accepted, OperatorConfig(), NOW)
    return [
        ConditionState(c["status"], Reason(c["reason"]), c["message"]) for c in status["conditions"]
    ]


def _pod(waiting: dict[str, Any] | None, *conditions: dict[str, Any], **more: Any) -> Any:
    containers = [{"name": "engine", "image": "e", "state": {"waiting": waiting}, **more}]
    status = {"conditions": list(conditions), "containerStatuses": containers if waiting else []}
    return {"metadata": {"name": "demo-1"}, "status": status}


def _everything_said() -> list[ConditionState]:
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    full = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota."}
    router = _deployment(names.ROUTER, availableReplicas=1)
    ready = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
    views = [
        _view(None, None),
        _view(_deployment("demo"), _deployment(names.ROUTER)),
        _view(_deployment("demo", stuck), router),
        _view(_deployment("demo", full), router),
        _view(_deployment("demo", **ready), _deployment(names.ROUTER)),
        _view(_deployment("demo", **ready | {"replicas": 2}), router),
        _view(_deployment("demo", **ready), router),
        _view(_deployment("demo", **ready), router, reached=False),
        _view(_deployment("demo"), router, suspend=True),
        _view(_deployment("demo"), router, replicas=0),
        _view(_deployment("demo"), router, autoscaling={"max": 2, "target": {"activeRequests": 1}}),
    ]
    scheduled = {"type": "PodScheduled", "status": "True"}
    homeless = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}
    ended = {"terminated": {"exitCode": 1, "message": "no such model"}}
    pods = [
        _pod(None),
        _pod(None, scheduled),
        _pod(None, homeless),
        _pod({"reason": "ImagePullBackOff"}),
        _pod({"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}),
        _pod({"reason": "CrashLoopBackOff"}, lastState=ended, restartCount=1),
    ]
    older = _model(model={"servedName": "demo"})
    older["metadata"] |= {"name": "older", "creationTimestamp": "1", "uid": "o"}
    newer = _model()
    newer["metadata"]["creationTimestamp"] = "2"
    taken = name_taken(newer, [older])
    assert taken is not None
    others = [
        understand(_model(engine={"dtype": "int3"}))[1],
        taken,
        refused(explain(Ref("Deployment", "ns", "demo"), "exceeded quota: pods.")),
        name_conflict([Ref("Service", "ns", "demo")]),
        *_scaling(),
        *_weights(),
    ]
    return [*(c for view in views for c in _said(view)), *map(diagnose, pods), *others]


def _weights() -> list[ConditionState]:
    """CacheReady of a model in each stage of its download."""
    cached = {"model": {"source": "hf://a/b"}, "cache": {"mode": "pvc", "size": "1Gi"}}
    users = cached | {"cache": {"mode": "pvc", "claim": "own"}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "demo-weights", "uid": "c"}}
    label = {names.LABEL_WEIGHTS: key_of(ServedModel.parse(_model(**cached)), "c")}

    def said(pod: Any = None, claim: Any = claim, spec: Any = cached) -> ConditionState:
        found = {} if claim is None else {Ref("PersistentVolumeClaim", "ns", "demo-weights"): claim}
        pods = () if pod is None else ({**pod, "metadata": {"name": "p", "labels": label}},)
        model = _model(**spec)
        view = ModelView(model, found, (), SharedView("ns", (model,), {}), downloads=pods)
        decided = decide(ServedModel.parse(model), view, OperatorConfig(), NOW)
        assert decided.condition is not None
        return decided.condition

    homeless = {"type": "PodScheduled", "status": "False", "message": "no storage."}
    failed = {"terminated": {"exitCode": 1, "message": "a/b is gated."}}
    ended = {"terminated": {"exitCode": 0, "message": Result("f", "r", 1).text()}}
    running: Any = {"status": {"phase": "Running"}}
    image = said(spec={"model": {"source": "oci://a/b"}, "cache": {"mode": "image"}})
    no_volumes = refused("spec.template.spec.volumes[3]: Required value")
    without = without_image_volumes(Weights(image), no_volumes).condition
    assert without is not None
    return [
        said(), said(claim=None), said(claim=None, spec=users),
        said(spec=cached | {"suspend": True}),
        said(running), said(_pod(None)), said(_pod(None, homeless)),
        said(_pod({"reason": "CrashLoopBackOff"}, lastState=failed)),
        said({"status": {"containerStatuses": [{"state": ended}]}}), image, without,
    ]  # fmt: skip


def _scaling() -> list[ConditionState]:
    policy = Policy(least=1, most=2, active_requests=1.0)

    def said(why: Why, *entries: record.Entry, has_metrics: bool = True) -> ConditionState:
        decision = Decision(1, why, "", 1)
        return record.condition(decision, policy, entries, has_metrics=has_metrics, now=NOW)

    stamp = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    foreign = {"reason": Why.OVERRIDDEN.value, "time": stamp, "message": "Another writer did."}
    whys = (Why.SUSPENDED, Why.AT_MAXIMUM, Why.NO_CAPACITY, Why.ON_TARGET)
    refusal = explain(Ref(names.KIND, "ns", "demo"), "ValidatingAdmissionPolicy 'two' denied it.")
    is_refused = record.condition(
        Decision(2, Why.ABOVE_TARGET, "", 2), policy, (), has_metrics=True, now=NOW, refusal=refusal
    )
    return [
        is_refused,
        *map(said, whys),
        said(Why.ON_TARGET, foreign),
        said(Why.ON_TARGET, has_metrics=False),
    ]


def test_each_message_that_is_no_good_news_ends_with_what_to_do() -> None:
    said = _everything_said()
    assert {state.reason for state in said} == set(Reason)
    for state in said:
        if GUIDE[state.reason].remedy != "Nothing.":
            assert ADVICE.search(state.message), state
