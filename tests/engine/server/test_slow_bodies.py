"""Clients that send their body a byte now and then, or without end, hold no connection."""

import socket
import time
from collections.abc import Iterator

import pytest

from engine.server.running import Server, serving
from fakes.dripping import CHUNKED, EARLY, POST, chunk, drip

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("slow"), "--grace-s", "0.5") as server:
        server.wait_ready()
        yield server


@pytest.mark.parametrize("case", EARLY)
def test_the_connection_ends_soon_after_an_answer_that_came_before_the_body(
    server: Server, case: str
) -> None:
    seen = drip(server.port, EARLY[case])
    assert seen.answered_s is not None
    assert seen.answered_s < 1.0
    assert b"connection: close" in seen.answer.lower()
    assert seen.closed_s is not None


def test_a_body_that_drips_is_answered_408_long_before_its_time_is_over(server: Server) -> None:
    seen = drip(server.port, POST + b"content-length: 99999\r\n\r\n")
    assert seen.status == 408
    assert b"body_timeout" in seen.answer
    assert seen.closed_s is not None


def test_a_chunked_body_is_refused_when_it_passes_the_limit_not_when_it_ends(
    server: Server,
) -> None:
    first = chunk(b" " * MIB) * 5
    seen = drip(server.port, POST + CHUNKED, first=first, piece=chunk(b"x"))
    assert seen.status == 413
    assert seen.closed_s is not None


def test_an_answer_before_a_body_that_is_all_here_keeps_the_connection(server: Server) -> None:
    """Clients use it again: a wrong path costs them no new connection."""
    wrong = b"POST /nope HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        for _ in range(3):
            client.sendall(wrong)
            answer = client.recv(4096)
            while not answer.endswith(b"}}"):
                answer += client.recv(4096)
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b"connection: close" not in answer.lower()


def test_a_body_that_pauses_shortly_is_read(server: Server) -> None:
    body = b'{"prompt": "hello", "max_tokens": 2}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(head % len(body) + body[:5])
        time.sleep(0.2)
        client.sendall(body[5:])
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
