"""Which endpoints are ejected, and when they return: examples, and properties of all histories."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_router.health import monitor
from yaie_router.health.outlier_detection import (
    FAILURES,
    HEALTHY,
    Event,
    Failure,
    Host,
    Limits,
    avoided,
    is_busy,
    step,
)

LIMITS = Limits()
EVENTS: list[Event] = [*get_args(get_args(Event)[0]), *FAILURES]
HISTORIES = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.floats(min_value=0, max_value=20)), max_size=60
)


def after(*events: Event, host: Host = HEALTHY, now_s: float = 100.0) -> Host:
    """The state after these events, all at one time."""
    for event in events:
        host = step(host, event, now_s, LIMITS)
    return host


def is_avoided(host: Host, now_s: float = 100.0) -> bool:
    """Whether it gets no request, beside three healthy ones."""
    return avoided({"a": host}, ["a", "b", "c", "d"], now_s, LIMITS) == {"a"}


@pytest.mark.parametrize("failure", FAILURES)
def test_so_many_failures_in_a_row_eject_and_no_fewer(failure: Failure) -> None:
    threshold = LIMITS.threshold(failure)
    assert not is_avoided(after(*[failure] * (threshold - 1)))
    assert is_avoided(after(*[failure] * threshold))


def test_an_answer_between_failures_begins_the_count_again() -> None:
    almost: list[Event] = ["5xx"] * (LIMITS.threshold("5xx") - 1)
    assert not is_avoided(after(*almost, "answered", *almost))


@pytest.mark.parametrize("failure", ["disconnect", "timeout"])
def test_a_first_token_does_not_disprove_that_streams_break_or_stall(failure: Failure) -> None:
    broken: list[Event] = ["answered", failure]
    assert is_avoided(after(*broken * 3))
    assert not is_avoided(after(*broken * 2, "finished", *broken * 2))


def test_busy_endpoints_are_never_ejected() -> None:
    host = after(*["busy"] * 1000)
    assert not is_avoided(host)
    assert is_busy(host, 100.5)
    assert not is_busy(host, 101.5)


def test_a_5xx_that_another_endpoint_answers_too_is_taken_back() -> None:
    assert not is_avoided(after(*(["5xx", "pardoned"] * 100)))  # type: ignore[arg-type]


def test_the_time_of_ejection_doubles_up_to_its_limit() -> None:
    host, now_s = after(*["5xx"] * 5), 100.0  # type: ignore[arg-type]
    for pause_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert is_avoided(host, now_s + pause_s - 0.01)
        now_s += pause_s
        assert not is_avoided(host, now_s)
        host = after("sent", "5xx", host=host, now_s=now_s)


def test_half_open_lets_one_request_through_which_decides() -> None:
    host = step(after(*["5xx"] * 5), "sent", 102.0, LIMITS)  # type: ignore[arg-type]
    assert is_avoided(host, 102.0)
    assert not is_avoided(step(host, "abandoned", 103.0, LIMITS), 103.0)
    assert step(host, "answered", 103.0, LIMITS) == HEALTHY
    assert is_avoided(step(host, "5xx", 103.0, LIMITS), 104.9)


@pytest.mark.parametrize("failure", ["disconnect", "timeout"])
def test_after_broken_or_stalled_streams_only_a_whole_answer_passes_the_trial(
    failure: Failure,
) -> None:
    host = step(after(*[failure] * 3), "sent", 102.0, LIMITS)
    assert is_avoided(step(host, "answered", 103.0, LIMITS), 103.0)
    assert step(host, "finished", 103.0, LIMITS) == HEALTHY


@pytest.mark.parametrize("event", ["answered", "finished", "5xx", "disconnect"])
def test_what_was_sent_before_the_ejection_says_nothing_after_it(event: Event) -> None:
    host = after(*["5xx"] * 5)  # type: ignore[arg-type]
    assert step(host, event, 105.0, LIMITS, began_s=99.0) == host


def test_an_unreachable_endpoint_returns_when_a_probe_is_answered() -> None:
    host = after("connect")
    assert is_avoided(host, 10_000.0)
    assert not is_avoided(step(host, "probed", 101.0, LIMITS), 101.0)


def test_at_most_half_of_the_endpoints_are_left_out_for_what_they_answer() -> None:
    failing = after(*["5xx"] * 5)  # type: ignore[arg-type]
    hosts = dict.fromkeys("abcd", failing)
    assert len(avoided(hosts, "abcd", 100.0, LIMITS)) == 2
    assert avoided(hosts, "abcdefgh", 100.0, LIMITS) == set("abcd")
    assert avoided(hosts, "a", 100.0, LIMITS) == set()


def test_all_unreachable_endpoints_are_left_out_unless_none_would_be_left() -> None:
    hosts = dict.fromkeys("abc", after("connect"))
    assert avoided(hosts, "abcd", 100.0, LIMITS) == set("abc")
    assert avoided(hosts, "abc", 100.0, LIMITS) == set()


# Properties


def play(history: list[tuple[Event, float]]) -> tuple[Host, float]:
    """The state after a history of (event, seconds since the last one), and the time then."""
    host, now_s = HEALTHY, 0.0
    for event, seconds in history:
        now_s += seconds
        host = step(host, event, now_s, LIMITS)
    return host, now_s


@settings(deadline=None)
@given(HISTORIES)
def test_every_endpoint_can_return(history: list[tuple[Event, float]]) -> None:
    host, now_s = play(history)
    host = step(host, "abandoned", now_s, LIMITS)
    host = step(host, "probed", now_s, LIMITS)
    later_s = now_s + LIMITS.max_ejection_time_s
    assert not is_avoided(host, later_s)
    host = step(step(host, "sent", later_s, LIMITS), "finished", later_s, LIMITS)
    assert replace(host, busy_until_s=0.0) == HEALTHY


@settings(deadline=None)
@given(HISTORIES)
def test_only_failures_eject(history: list[tuple[Event, float]]) -> None:
    host, now_s = play([(event, s) for event, s in history if event not in FAILURES])
    assert not is_avoided(host, now_s)


@settings(deadline=None)
@given(HISTORIES)
def test_an_ejection_has_a_reason_and_an_end(history: list[tuple[Event, float]]) -> None:
    host, now_s = play(history)
    assert (host.reason is not None) == host.is_ejected
    assert host.until_s <= now_s + LIMITS.max_ejection_time_s
    assert all(count >= 0 for count in host.failed)
    assert not host.on_trial or host.is_ejected


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), HISTORIES), st.sets(st.sampled_from("abcdefgh"))
)
def test_somebody_is_always_left(
    histories: dict[str, list[tuple[Event, float]]], names: set[str]
) -> None:
    played = {name: play(history) for name, history in histories.items()}
    now_s = max((now for _, now in played.values()), default=0.0)
    hosts = {name: host for name, (host, _) in played.items()}
    out = avoided(hosts, names, now_s, LIMITS)
    assert out <= names
    assert not names or out != names
    failing = [name for name in out if not hosts[name].unreachable]
    assert len(failing) <= len(names) * LIMITS.max_ejection_percent // 100


@pytest.mark.parametrize("event", sorted(monitor._CALM))
def test_calm_events_leave_a_healthy_endpoint_as_it_is(event: Event) -> None:
    assert step(HEALTHY, event, 100.0, LIMITS) == HEALTHY
