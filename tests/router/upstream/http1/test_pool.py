"""Which connections to an engine are used again, over real sockets."""

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Self

import pytest
import pytest_asyncio

from ports import free_port
from router.conftest import GENEROUS_S
from yaie_router.upstream.http1 import pool as pools
from yaie_router.upstream.http1.connection import BrokenError, Connection
from yaie_router.upstream.http1.pool import Pool

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """A server that answers each request with the next of these bytes; b"": by leaving."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.ended = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
        while self.ended < self.connections:  # noqa: ASYNC110 - of the test itself
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n") and (answer := self.answers.pop(0)):
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended += 1


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(2.0)
    yield made
    made.close()


async def asked(pool: Pool, peer: Peer) -> bytes:
    connection = await pool.take("127.0.0.1", peer.port)
    try:
        return await whole(connection)
    finally:
        pool.give_back(connection)


async def whole(connection: Connection) -> bytes:
    connection.send("GET", "/", [], b"")
    await connection.head()
    found = b""
    while data := await connection.read():
        found += data
    return found


async def test_a_connection_is_used_again_after_a_whole_answer(pool: Pool) -> None:
    async with Peer(*[ANSWER] * 3) as peer:
        assert [await asked(pool, peer) for _ in range(3)] == [b"ok"] * 3
        assert peer.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0"),
        ANSWER + ANSWER,
        ANSWER + b"\n",
    ],
    ids=["close", "HTTP/1.0", "a second answer", "one byte more"],
)
async def test_what_could_mix_up_answers_ends_the_connection(pool: Pool, answer: bytes) -> None:
    async with Peer(answer, ANSWER) as peer:
        assert [await asked(pool, peer) for _ in range(2)] == [b"ok"] * 2
        assert peer.connections == 2


async def test_an_answer_that_nobody_read_to_its_end_ends_the_connection(pool: Pool) -> None:
    async with Peer(ANSWER[:-1], ANSWER) as peer:
        connection = await pool.take("127.0.0.1", peer.port)
        connection.send("GET", "/", [], b"")
        assert await connection.read() == b"o"
        pool.give_back(connection)
        assert await asked(pool, peer) == b"ok"
        assert peer.connections == 2


async def test_interim_answers_are_passed_over(pool: Pool) -> None:
    async with Peer(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nx: y\r\n\r\n" + ANSWER
    ) as peer:
        assert await asked(pool, peer) == b"ok"


async def test_bytes_that_nobody_asked_for_end_an_idle_connection(pool: Pool) -> None:
    async with Peer(ANSWER, ANSWER) as peer:
        connection = await pool.take("127.0.0.1", peer.port)
        assert await whole(connection) == b"ok"
        pool.give_back(connection)
        connection.data_received(ANSWER)
        assert await asked(pool, peer) == b"ok"
        assert peer.connections == 2


async def test_an_idle_connection_ends_after_a_while(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_S", 0.05)
    async with Peer(ANSWER) as peer:
        assert await asked(pool, peer) == b"ok"
        async with asyncio.timeout(GENEROUS_S):
            while not peer.ended:  # noqa: ASYNC110 - the peer tells nobody
                await asyncio.sleep(0.01)


async def test_nobody_listens(pool: Pool) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number says which
        await pool.take("127.0.0.1", free_port())
    assert caught.value.errno == errno.ECONNREFUSED


async def test_an_engine_that_leaves_without_an_answer_broke_it(pool: Pool) -> None:
    async with Peer(b"") as peer:
        connection = await pool.take("127.0.0.1", peer.port)
        connection.send("GET", "/", [], b"")
        with pytest.raises(BrokenError):
            await connection.head()
        connection.close()
