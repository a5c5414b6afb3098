"""Trace context as W3C's recommendation has it."""

import pytest

from yaie_api.tracing.w3c import TraceContext, read

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_a_valid_header_names_trace_span_and_flags() -> None:
    assert read([VALID]) == TraceContext(TRACE, SPAN, 1)
    assert read([VALID]) is not None
    assert TraceContext(TRACE, SPAN, 1).header == VALID


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        [VALID, VALID],
        [VALID.upper()],
        [VALID + "-more"],
        [VALID[:-1]],
        [VALID.replace("-", "_")],
        ["ff" + VALID[2:]],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE}-{SPAN}-0x"],
        [VALID + "\u0661"],
    ],
)
def test_what_is_not_valid_is_none(values: list[str]) -> None:
    assert read(values) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = read([f"cc-{TRACE}-{SPAN}-ff-what-the-future-will-be-like"])
    assert found == TraceContext(TRACE, SPAN, 3)
    assert read([f"cc-{TRACE}-{SPAN}-01.what"]) is None


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (["a=1", " b=2 , "], "a=1,b=2"),
        (["tenant@vendor=x"], "tenant@vendor=x"),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        ([",".join(f"k{n}=1" for n in range(33))], ""),
        ([], ""),
    ],
)
def test_the_state_is_passed_on_if_it_is_valid(states: list[str], kept: str) -> None:
    found = read([VALID], states)
    assert found is not None
    assert found.state == kept


def test_a_child_is_in_the_same_trace_with_another_span() -> None:
    above = TraceContext(TRACE, SPAN, 3, "a=1")
    below = above.child().sampled(False)
    assert (below.trace_id, below.state, below.flags) == (TRACE, "a=1", 2)
    assert below.span_id != SPAN
    assert read([below.header], [below.state]) == below


def test_new_traces_are_valid_and_differ() -> None:
    first, second = TraceContext.new(), TraceContext.new()
    assert read([first.header]) == first
    assert first.trace_id != second.trace_id
