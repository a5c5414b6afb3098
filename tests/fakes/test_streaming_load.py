"""A load sees each way in which a stream is not whole."""

import json

import pytest

from fakes.streaming_load import what_is_wrong
from yaie_api.errors import EngineError
from yaie_router.upstream.delivery.stream import last_words

DONE = b"data: [DONE]\n\n"
ERROR = EngineError("The engine stopped while it was answering.", code="engine_stopped")


def event(finish_reason: str | None = None, text: str = "dogs ") -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()


USAGE = b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n'


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_whole_stream_is_none(reason: str) -> None:
    assert what_is_wrong(b": ping\n\n" + event() + event(reason) + USAGE + DONE) == ""


def test_the_last_words_of_a_broken_stream_are_told() -> None:
    for begun in (b"", event(), event("stop")):
        assert ERROR.message in what_is_wrong(begun + last_words(ERROR, "/v1/chat/completions"))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"", "no [DONE]"),
        (event() + event("stop"), "no [DONE]"),
        (event() + event("stop")[:-9], "no [DONE]"),
        (event() + event("stop") + DONE + event(), "no [DONE]"),
        (event() + event("stop")[:-9] + b"\n\n" + DONE, "no JSON"),
        (event() + event("stop") + b"data: \xff\n\n" + DONE, "no JSON"),
        (event() + DONE, "no finish_reason"),
        (event("engine_stopped") + DONE, "no finish_reason"),
        (DONE, "no finish_reason"),
    ],
)
def test_a_stream_that_is_cut_or_has_no_end_of_its_own_is_told(told: bytes, why: str) -> None:
    assert what_is_wrong(told).startswith(why)
