"""What of a stream shows that an engine computes."""

import pytest

from router.fakes import DONE, event
from yaie_router.upstream.delivery.progress import shows_data, shows_tokens

PING = b": ping\n\n"
ROLE = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
)
CREATED = b'event: response.created\ndata: {"type": "response.created"}\n\n'
STARTED = b'event: message_start\ndata: {"type": "message_start"}\n\n'
ANTHROPIC_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


@pytest.mark.parametrize(
    "data",
    [b"", PING, PING * 3, ROLE, ROLE * 2 + PING, CREATED + PING, STARTED + ANTHROPIC_PING],
)
def test_heartbeats_and_opening_events_are_no_tokens(data: bytes) -> None:
    assert not shows_tokens(data)


@pytest.mark.parametrize("opening", [b"", PING, ROLE, CREATED, STARTED + ANTHROPIC_PING])
@pytest.mark.parametrize("data", [event("a"), DONE, b'data: {"error": {}}\n\n', b"data: x\r\n\r\n"])
def test_whatever_follows_is(opening: bytes, data: bytes) -> None:
    assert shows_tokens(opening + data)


def test_an_event_counts_when_it_is_whole() -> None:
    assert not shows_tokens(ROLE + event("a")[:-1])
    assert not shows_tokens(ROLE[:100])


@pytest.mark.parametrize(
    ("data", "shows"),
    [
        (PING, False),
        (b"\n", False),
        (ANTHROPIC_PING, False),
        (PING + event("a"), True),
        (event("a"), True),
        (b'"part of an event"', True),
    ],
)
def test_in_mid_stream_all_but_heartbeats_is_progress(data: bytes, shows: bool) -> None:
    assert shows_data(data) is shows


def test_a_chunk_is_judged_behind_its_size() -> None:
    assert shows_data(b"1f\r\n" + event("a") + b"\r\n", 4)
    assert not shows_data(b"8\r\n" + PING + b"\r\n", 3)
