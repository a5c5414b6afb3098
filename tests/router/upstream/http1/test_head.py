"""Heads of requests and of answers."""

import asyncio
from collections.abc import Iterator

import pytest

from yaie_router.upstream.http1.framing import Body, Chunked, FramingError, Length, UntilClosed
from yaie_router.upstream.http1.head import ResponseHead, head_end, parse_head, request_head


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_a_request_is_written_as_it_is() -> None:
    raw = request_head("POST", "/v1/x?a=%20", "[::1]:80", [("x-a", "é"), ("x-b", "\udcff")], 3)
    assert raw == (
        b"POST /v1/x?a=%20 HTTP/1.1\r\nHost: [::1]:80\r\nx-a: \xc3\xa9\r\nx-b: \xff\r\n"
        b"Content-Length: 3\r\n\r\n"
    )
    assert b"Content-Length" not in request_head("GET", "/", "a:1", [], 0)
    assert b"Content-Length: 0" in request_head("POST", "/", "a:1", [], 0)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nx: y", "/a\0", "/é", "/a\tb"])
def test_no_target_breaks_out_of_its_line(target: str) -> None:
    with pytest.raises(ValueError, match="target"):
        request_head("GET", target, "a:1", [], 0)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\n", "\0"])
def test_no_header_breaks_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request_head("GET", "/", "a:1", [("x", value)], 0)


@pytest.mark.parametrize(
    ("lines", "body", "keeps_open"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked", Chunked, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 7", Length, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close", Length, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 7", Length, False),
        (b"HTTP/1.1 200 OK", UntilClosed, False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip", UntilClosed, False),
        (b"HTTP/1.1 204 No", Length, True),
        (b"HTTP/1.1 304 No\r\ncontent-length: 7", Length, True),
        (b"HTTP/1.1 200", UntilClosed, False),
    ],
)
def test_the_head_says_where_the_body_ends(
    loop: asyncio.AbstractEventLoop, lines: bytes, body: type[Body], keeps_open: bool
) -> None:
    data = lines + b"\r\n\r\n"
    assert head_end(data + b"rest") == len(data)
    head = parse_head(data, loop)
    assert type(head.body) is body
    assert head.keeps_open is keeps_open


@pytest.mark.parametrize(
    "lines",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5, 5",
        b"HTTP/1.1 200 OK\r\ncontent-length: +5",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 30,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
        b"HTTP/1.1 200 OK\r\n: nameless",
        b"HTTP/1.1 200 OK\r\nx y: z",
        b"HTTP/1.1 200 OK\r\nx: \0",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 OK",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade",
        b"HTTP/1.1 200 OK" + b"\r\nh: x" * 200,
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 10_000,
    ],
    ids=lambda lines: repr(lines[:60]),
)
def test_a_doubtful_head_is_refused(loop: asyncio.AbstractEventLoop, lines: bytes) -> None:
    with pytest.raises(FramingError):
        parse_head(lines + b"\r\n\r\n", loop)


@pytest.mark.parametrize("data", [b"hello", b"HTTP/2", b"\r\nHTTP/1.1 200 OK\r\n\r\n", b"\0"])
def test_what_is_not_http_is_refused_at_its_first_bytes(data: bytes) -> None:
    with pytest.raises(FramingError):
        head_end(data)


def test_a_head_may_come_in_pieces_but_not_grow_for_ever() -> None:
    whole = b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n"
    assert [head_end(whole[:size]) for size in range(len(whole))] == [0] * len(whole)
    with pytest.raises(FramingError):
        head_end(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000)


def test_only_an_event_stream_is_one(loop: asyncio.AbstractEventLoop) -> None:
    def told(kind: bytes) -> ResponseHead:
        return parse_head(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n\r\n" % kind, loop)

    assert told(b"Text/Event-Stream ; charset=utf-8").is_events
    assert not told(b"application/json").is_events
