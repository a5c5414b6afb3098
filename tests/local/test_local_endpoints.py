from typing import Any

from fakes.local_objects import STAMP, pod, service
from yaie_local.controllers.endpoints import slice_of


def stored_service(**spec: Any) -> Any:
    made = service(**spec)
    meta = {**made["metadata"], "uid": "u", "labels": {"yaie.dev/model": "web"}}
    return {**made, "metadata": meta}


def web(name: str, **more: Any) -> Any:
    meta = {"labels": {"app": "web"}, **more.pop("metadata", {})}
    return pod(name, metadata=meta, **more)


def endpoints(*pods: Any, **spec: Any) -> list[Any]:
    found = slice_of(stored_service(**spec), pods)
    assert found is not None
    result: list[Any] = found["endpoints"]
    return result


def test_a_slice_carries_the_labels_of_its_service_and_its_name() -> None:
    found = slice_of(stored_service(), [])
    assert found is not None
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == "web"
    assert labels["yaie.dev/model"] == "web"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_selected_pods_with_an_address_are_endpoints_in_order() -> None:
    stranger = pod("x", metadata={"labels": {"app": "other"}})
    found = endpoints(web("b", ip="127.1.0.2"), web("a"), web("c", ip=None), stranger)
    assert [e["targetRef"]["name"] for e in found] == ["a", "b"]
    assert found[1]["addresses"] == ["127.1.0.2"]


def conditions(*pods: Any, **spec: Any) -> tuple[bool, bool, bool]:
    (one,) = endpoints(*pods, **spec)
    told = one["conditions"]
    return told["ready"], told["serving"], told["terminating"]


def test_an_ending_pod_serves_but_is_not_ready() -> None:
    ending = {"deletionTimestamp": STAMP}
    assert conditions(web("a")) == (True, True, False)
    assert conditions(web("a", ready=False)) == (False, False, False)
    assert conditions(web("a", metadata=ending)) == (False, True, True)
    assert conditions(web("a", ready=False), publishNotReadyAddresses=True) == (True, False, False)


def test_ports_by_number_name_and_default() -> None:
    ports = [
        {"name": "a", "port": 80, "targetPort": "http"},
        {"name": "b", "port": 81, "targetPort": 9000},
        {"name": "c", "port": 82},
    ]
    found = slice_of(stored_service(ports=ports), [web("a")])
    assert found is not None
    assert [p["port"] for p in found["ports"]] == [8000, 9000, 82]


def test_a_service_without_selector_has_no_slice_of_ours() -> None:
    assert slice_of(stored_service(selector={}), []) is None
