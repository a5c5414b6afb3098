"""The router ends connections of clients whose bodies never end, as an engine's server does."""

import asyncio

import pytest

from fakes.dripping import CHUNKED, EARLY, POST, Dripped, chunk, drip
from router.conftest import Stack, StackMaker
from yaie_router.downstream import edge

LINGER_S = 0.5


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "LINGER_S", LINGER_S)


async def dripped(stack: Stack, head: bytes, first: bytes = b"", piece: bytes = b"x") -> Dripped:
    port = stack.config.port
    return await asyncio.to_thread(drip, port, head, first=first, piece=piece)


@pytest.mark.usefixtures("_quick")
async def test_the_connection_ends_soon_after_an_answer_that_came_before_the_body(
    stack: Stack,
) -> None:
    for case, seen in zip(
        EARLY, await asyncio.gather(*(dripped(stack, EARLY[one]) for one in EARLY)), strict=True
    ):
        assert seen.answered_s is not None, case
        assert b"connection: close" in seen.answer.lower(), case
        assert seen.closed_s is not None, case
        assert seen.closed_s - seen.answered_s < LINGER_S + 5.0, case


@pytest.mark.usefixtures("_quick")
async def test_a_body_that_drips_is_answered_408_and_the_connection_ends(
    start_router: StackMaker,
) -> None:
    stack = await start_router(body_timeout_s=0.5)
    seen = await dripped(stack, POST + b"content-length: 99999\r\n\r\n")
    assert seen.status == 408
    assert b"body_timeout" in seen.answer
    assert seen.closed_s is not None


@pytest.mark.usefixtures("_quick")
async def test_a_chunked_body_is_refused_when_it_passes_the_limit_not_when_it_ends(
    start_router: StackMaker,
) -> None:
    stack = await start_router(max_body_bytes=100_000)
    first = chunk(b" " * 60_000) * 2
    seen = await dripped(stack, POST + CHUNKED, first, piece=chunk(b"x"))
    assert seen.status == 413
    assert seen.closed_s is not None
