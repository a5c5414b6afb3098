"""Small pure parts of the router: endpoints, budget, admission, streams, settings."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.fakes import FakeEngine, endpoint_slice, event, inference_model
from yaie_api.errors import EngineError, OverloadedError
from yaie_router.balancing.admission import Admission
from yaie_router.config import parse
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint, Slice, parse_model, parse_slice
from yaie_router.health.retry_budget import RetryBudget
from yaie_router.upstream.delivery.stream import MOST_HELD_BYTES, EventGate, last_words


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


IDLE = {
    "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Valid"},
        {"type": "EnginesReady", "status": "True", "reason": "Idle"},
        {"type": "Available", "status": "False", "reason": "NoEngine", "message": "0 of 1."},
        {"type": "Ready", "status": "True", "reason": "Idle"},
    ]
}
"""As the operator writes it."""


# Endpoints


def slice_of(model: str, *names: str, address: str = "10.0.0.1", **more: Any) -> dict[str, Any]:
    entries = [{"addresses": [address], "targetRef": {"name": name}} for name in names]
    metadata = {"name": more.pop("name", f"{model}-0"), "labels": {"yaie.dev/model": model}}
    return {"metadata": metadata, "ports": [{"port": 8000}], "endpoints": entries} | more


def test_a_model_reads_what_routing_needs() -> None:
    model = parse_model(
        inference_model(
            "big",
            model={"source": "x", "servedName": "org/big", "aliases": ["a"]},
            routing={"policy": "LeastLoaded", "loadFactor": 2, "timeoutSeconds": 30},
        )
    )
    assert (model.name, model.served, model.aliases) == ("big", "org/big", ("a",))
    assert (model.policy, model.load_factor, model.timeout_s) == ("LeastLoaded", 2.0, 30)


def test_a_bare_model_has_the_defaults() -> None:
    model = parse_model({"metadata": {"name": "m"}})
    assert (model.served, model.policy, model.load_factor) == ("m", "PrefixAffinity", 1.25)
    assert model.awaiting == "the operator has not acted on it yet"


@pytest.mark.parametrize(
    ("spec", "status", "awaiting"),
    [
        ({"autoscaling": {"min": 0}}, IDLE, "scaled to zero; a request starts it"),
        ({"replicas": 0}, IDLE, "it is scaled to zero"),
        ({"suspend": True}, {}, "suspended"),
        ({"replicas": 0}, {}, "0 replicas"),
        ({}, {"phase": "Starting"}, "engines are starting"),
        (
            {},
            {"conditions": [{"type": "Accepted", "status": "False", "reason": "NameConflict"}]},
            "Accepted is False: NameConflict",
        ),
        (
            {},
            {
                "conditions": [
                    {"type": "RouterReady", "status": "False", "message": "router"},
                    {"type": "EnginesReady", "status": "Unknown", "message": "engines"},
                ]
            },
            "EnginesReady is Unknown: engines",
        ),
    ],
)
def test_a_model_says_what_it_awaits(
    spec: dict[str, Any], status: dict[str, Any], awaiting: str
) -> None:
    model = parse_model(inference_model("m", **spec) | {"status": status})
    assert awaiting in model.awaiting


def test_a_slice_gives_endpoints_that_take_requests() -> None:
    item = slice_of("m", "ready", "unready", "leaving", "unnamed")
    item["endpoints"][1]["conditions"] = {"ready": False}
    item["endpoints"][2]["conditions"] = {"ready": True, "terminating": True}
    del item["endpoints"][3]["targetRef"]
    item["endpoints"][3]["addresses"] = ["10.0.0.9"]
    assert parse_slice(item) == Slice(
        "m",
        ready=(Endpoint("ready", "10.0.0.1", 8000), Endpoint("10.0.0.9", "10.0.0.9", 8000)),
        resting=(Endpoint("unready", "10.0.0.1", 8000), Endpoint("leaving", "10.0.0.1", 8000)),
        waiting=(Endpoint("unready", "10.0.0.1", 8000),),
    )


def test_the_http_port_is_chosen_by_name() -> None:
    ports = [{"name": "metrics", "port": 1}, {"name": "http", "port": 2}]
    assert parse_slice(slice_of("m", "a", ports=ports)).ready[0].port == 2
    assert parse_slice(slice_of("m", "a", ports=[])).ready[0].port == 8000


def test_empty_slices_and_absent_lists_are_no_endpoints() -> None:
    assert parse_slice(endpoint_slice("m")) == Slice("m")
    assert parse_slice({"metadata": {"name": "s"}, "endpoints": None}) == Slice("")


def test_addresses_of_version_six_are_bracketed_in_urls() -> None:
    assert Endpoint("a", "fd00::1", 80).base_url == "http://[fd00::1]:80"
    assert Endpoint("a", "10.0.0.1", 80).base_url == "http://10.0.0.1:80"


def test_a_pod_in_two_slices_is_one_endpoint() -> None:
    directory = Directory()
    directory.models.replace([inference_model("m")])
    directory.slices.replace(
        [
            slice_of("m", "pod", name="m-ipv4"),
            slice_of("m", "pod", name="m-ipv6", address="fd00::1"),
            slice_of("other", "elsewhere", name="other-0"),
        ]
    )
    model = directory.find("m")
    assert model is not None
    assert model.endpoints == (Endpoint("pod", "10.0.0.1", 8000),)


def test_a_served_name_wins_over_aliases_and_the_oldest_among_equals() -> None:
    directory = Directory()
    taken = {"source": "x", "aliases": ["b", "shared"]}
    old = inference_model("a", model=taken)
    young = inference_model("c", model={"source": "x", "servedName": "b", "aliases": ["shared"]})
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    directory.models.replace([young, old])
    found = {name: directory.find(name) for name in ("b", "shared")}
    assert {name: model.name for name, model in found.items() if model} == {"b": "c", "shared": "a"}


def test_unchanged_objects_change_nothing() -> None:
    changes: list[int] = []
    directory = Directory(lambda: changes.append(1))
    directory.models.replace([inference_model("m")])
    directory.models.put(inference_model("m") | {"status": {}})
    directory.models.drop(inference_model("unknown"))
    assert len(changes) == 1
    assert not directory.is_listed
    directory.slices.replace([])
    assert directory.is_listed


BROKEN: list[Any] = [
    {"metadata": {"name": "m", "creationTimestamp": "never"}},
    {"metadata": {"name": "m"}, "spec": {"routing": {"loadFactor": "much"}}},
    {"metadata": {"name": "m"}, "spec": [1]},
    {"metadata": {"name": "m"}, "status": {"conditions": [None]}},
    {"metadata": None},
    {"metadata": {"name": None}},
    {},
    None,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_object_is_skipped_and_its_last_good_state_is_kept(broken: Any) -> None:
    directory = Directory()
    directory.models.replace([inference_model("m"), inference_model("other")])
    directory.models.put(broken)
    assert directory.served_names() == ["m", "other"]
    directory.models.replace([broken, inference_model("other")])
    assert "other" in directory.served_names()


@pytest.mark.parametrize(
    "broken",
    [
        {"endpoints": [None]},
        {"endpoints": [{"addresses": [7]}]},
        {"ports": [{"port": "http"}]},
        {"ports": 7},
        {"endpoints": [{"addresses": ["10.0.0.9"], "targetRef": 7}]},
    ],
)
def test_a_broken_slice_leaves_the_endpoints_that_were_known(broken: dict[str, Any]) -> None:
    directory = Directory()
    directory.models.replace([inference_model("m")])
    directory.slices.replace([slice_of("m", "a")])
    directory.slices.put(slice_of("m", "a", "b") | broken)
    model = directory.find("m")
    assert model is not None
    assert [endpoint.name for endpoint in model.endpoints] == ["a"]


def test_null_is_as_good_as_absent() -> None:
    nulls = dict.fromkeys(("model", "routing", "autoscaling", "suspend", "replicas"))
    model = parse_model({"metadata": {"name": "m"}, "spec": nulls, "status": None})
    assert model == parse_model({"metadata": {"name": "m"}})
    nulls = dict.fromkeys(("endpoints", "ports"))
    assert parse_slice({"metadata": {"name": "s", "labels": None}} | nulls) == Slice("")


# Retries


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=2000))
def test_retries_never_exceed_the_reserve_and_a_fifth_of_requests(requests: list[bool]) -> None:
    budget = RetryBudget(ratio=0.2, reserve=10.0)
    sent = 0
    for wants_retry in requests:
        budget.deposit()
        sent += wants_retry and budget.withdraw()
    assert sent <= 10 + 0.2 * len(requests) + 1e-6


# Admission


def test_places_are_given_back_and_counts_leave_no_trace() -> None:
    admission = Admission(Clock())
    with admission.admitted("m", 2), admission.admitted("m", 2):
        assert admission.in_flight == 2
        with pytest.raises(OverloadedError) as refused, admission.admitted("m", 2):
            pass
        with admission.admitted("other", 2), admission.sent_to("pod"):
            assert admission.loads == {"pod": 1}
    assert refused.value.retry_after_s == 1
    assert admission.in_flight == 0
    assert not admission.loads
    assert not admission.in_flight_by_model


def test_retry_after_follows_the_measured_duration() -> None:
    clock = Clock()
    admission = Admission(clock)
    with admission.admitted("m", 1):
        clock.now_s += 40.0
    with admission.admitted("m", 8), admission.admitted("m", 8):
        assert admission.retry_after_s("m") == 20  # 40 s each, two in flight
    assert admission.retry_after_s("never seen") == 1


# Streams


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"data: {}\n\n", b"\r\n\r\n", b"x", b"\n", b": ping\n\n"])))
def test_the_gate_changes_no_byte_and_cuts_at_events(pieces: list[bytes]) -> None:
    gate = EventGate()
    sent = [gate.push(piece) for piece in pieces]
    assert all(not out or out.endswith((b"\n\n", b"\r\n\r\n")) for out in sent)
    assert b"".join(sent) + gate.flush() == b"".join(pieces)


def test_whole_events_are_not_held() -> None:
    gate = EventGate()
    assert gate.push(event("a") + event("b")) == event("a") + event("b")
    assert gate.flush() == b""


def test_the_gate_holds_bounded_memory() -> None:
    gate = EventGate()
    huge = b"x" * (MOST_HELD_BYTES + 1)
    assert gate.push(huge) == huge
    assert gate.flush() == b""


def test_last_words_of_a_chat_are_one_event_and_done() -> None:
    error = EngineError("why\nnot")
    first, second, rest = last_words(error, "/v1/chat/completions").split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: "))["error"]["message"] == "why\nnot"
    assert (second, rest) == (b"data: [DONE]", b"")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_last_words_have_a_name_where_events_have_names(path: str) -> None:
    block, rest = last_words(EngineError("why\nnot"), path).split(b"\n\n")
    name, data = block.split(b"\n")
    assert (name, rest) == (b"event: error", b"")
    told = json.loads(data.removeprefix(b"data: "))
    assert told["type"] == "error"
    assert told["error"]["message"] == "why\nnot"


# Settings


def test_settings_come_from_flags_then_environment() -> None:
    env = {"YAIE_NAMESPACE": "team", "YAIE_API_SOCKET": "/run/api.sock", "YAIE_PREFIX_KEY": "00ff"}
    config = parse([], env)
    assert (config.namespace, str(config.api_socket)) == ("team", "/run/api.sock")
    assert (config.prefix_key, config.drain_delay_s) == (b"\x00\xff", 0.0)
    assert parse(["--namespace", "x", "--port", "9"], env).namespace == "x"


def test_in_a_cluster_the_api_server_is_found_in_the_environment() -> None:
    config = parse([], {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    assert config.api_address == ("10.0.0.1", "443")
    assert config.api_socket is None


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "no API server"),
        ({"YAIE_API_SOCKET": "/s", "YAIE_PREFIX_KEY": "xyz"}, "hexadecimal"),
        ({"YAIE_API_SOCKET": "/s", "YAIE_PREFIX_KEY": "00" * 65}, "64 bytes"),
        ({"YAIE_API_SOCKET": "/s", "YAIE_LISTEN_FD": "three"}, "open socket"),
        ({"YAIE_API_SOCKET": "/s", "OTEL_TRACES_EXPORTER": "console"}, "by otlp or none"),
    ],
)
def test_wrong_settings_are_refused_with_a_message(
    env: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([], env)
    assert message in capsys.readouterr().err


def test_an_engine_double_without_knobs_is_wellbehaved() -> None:
    assert FakeEngine().pieces[-1] == b"data: [DONE]\n\n"
