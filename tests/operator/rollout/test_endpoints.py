from typing import Any

from yaie_operator.reconcile.rollout.endpoints import ready_pods


def endpoint(pod: str | None, **conditions: bool) -> dict[str, Any]:
    target = {"targetRef": {"kind": "Pod", "name": pod}} if pod else {}
    return {"addresses": ["10.0.0.1"], "conditions": conditions, **target}


def test_ready_pods_of_all_slices_count_once() -> None:
    first = {"endpoints": [endpoint("a", ready=True), endpoint("b", ready=False)]}
    second = {"endpoints": [endpoint("a", ready=True), endpoint("c")]}
    assert ready_pods([first, second]) == {"a", "c"}


def test_an_endpoint_that_ends_takes_nothing_new() -> None:
    """A Service that publishes pods that are not ready calls an ending one ready."""
    assert ready_pods([{"endpoints": [endpoint("a", ready=True, terminating=True)]}]) == set()


def test_an_endpoint_without_a_pod_is_known_by_its_address() -> None:
    assert ready_pods([{"endpoints": [endpoint(None)]}]) == {"10.0.0.1"}


def test_a_slice_may_have_no_endpoints() -> None:
    assert ready_pods([{"endpoints": None}, {}]) == set()
