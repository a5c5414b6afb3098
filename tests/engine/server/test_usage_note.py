"""A router that asks is told what an answer took; nobody else sees a difference."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import ids_of, running, says
from yaie_api.http.usage_note import TokenUsage, UsageFilter
from yaie_api.names import HEADER_USAGE

HELLO = [{"role": "user", "content": "hello"}]
BODIES = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": ["hello", "you"], "max_tokens": 100},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 100},
}
PATHS = pytest.mark.parametrize("path", BODIES)


def same(body: bytes) -> bytes:
    """The body without what differs from answer to answer."""
    told = re.sub(rb'"(id|item_id)":"[^"]*"', b'"id":"*"', body)
    return re.sub(rb'"(created|created_at|completed_at)":[0-9.]+', b'"created":0', told)


def body_of(path: str, **more: Any) -> dict[str, Any]:
    return BODIES[path] | {"model": "stub"} | more


@PATHS
async def test_a_plain_answer_tells_it_in_a_header(path: str, tmp_path: Path) -> None:
    async with running(tmp_path, says("so it is", cached_tokens=1)) as app:
        asked = await app.post(path, body_of(path), **{HEADER_USAGE: "1"})
        plain = await app.post(path, body_of(path))
    prompts = 2 if path == "/v1/completions" else 1
    sent = sum(len(one.prompt_token_ids) for one in app.engine.requests[:prompts])
    said = len(ids_of("so it is")) * prompts
    assert TokenUsage.read(asked.headers[HEADER_USAGE]) == TokenUsage(sent, prompts, said)
    assert HEADER_USAGE not in plain.headers
    assert same(asked.content) == same(plain.content)


@PATHS
async def test_a_stream_tells_it_in_a_comment_before_done(path: str, tmp_path: Path) -> None:
    async with running(tmp_path, says("so it is", cached_tokens=1)) as app:
        asked = await app.post(path, body_of(path, stream=True), **{HEADER_USAGE: "1"})
        plain = await app.post(path, body_of(path, stream=True))
    notes = UsageFilter()
    shown = notes.feed(asked.content) + notes.flush()
    assert notes.usage is not None
    assert notes.usage.completion_tokens % len(ids_of("so it is")) == 0
    assert same(shown) == same(plain.content)
    assert asked.content.endswith(
        notes.usage.comment() + (b"data: [DONE]\n\n" if b"[DONE]" in shown else b"")
    )
    assert b"yaie-usage" not in plain.content


async def test_a_stream_that_fails_tells_what_came_before(tmp_path: Path) -> None:
    async with running(tmp_path, says("so it", finish="error")) as app:
        answer = await app.post(
            "/v1/completions",
            {"prompt": "hello", "model": "stub", "stream": True},
            **{HEADER_USAGE: "1"},
        )
    notes = UsageFilter()
    assert b'"error"' in notes.feed(answer.content)
    assert notes.usage is not None
    assert notes.usage.completion_tokens == len(ids_of("so it"))


async def test_what_has_no_prompt_tells_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, says("so it is")) as app:
        for path in ("/v1/nowhere", "/v1/chat/completions"):
            answer = await app.post(path, {}, **{HEADER_USAGE: "1"})
            assert answer.status_code in (400, 404, 422)
            assert HEADER_USAGE not in answer.headers
            assert b"yaie-usage" not in answer.content
