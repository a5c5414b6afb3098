"""Prompts within limits: slow templates and long texts hold up nobody else."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.server.scripted import running, says
from yaie.server.request import prompts
from yaie.server.request.prompts import chat_ids
from yaie.text.prompt.sandbox import TemplateTimeoutError
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest, parse

SLOW = (
    "{% if 'slow' in messages[0].content %}{% for i in range(90000) %}{% for j in range(90000) %}"
    "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"
)


async def longest_wait(work: Any) -> tuple[Any, float]:
    """The result of some work, and the longest that anybody else had to wait for a turn."""
    task, worst_s = asyncio.ensure_future(work), 0.0
    while not task.done():
        before_s = time.monotonic()
        await asyncio.sleep(0.001)
        worst_s = max(worst_s, time.monotonic() - before_s)
    return await task, worst_s


async def test_a_slow_template_holds_up_nobody_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "RENDER_S", 2.0)
    async with running(tmp_path, says("x"), template=SLOW) as app:

        def ask(text: str) -> Any:
            messages = [{"role": "user", "content": text}]
            return app.post("/v1/chat/completions", {"messages": messages})

        started_s = time.monotonic()
        answer, worst_s = await longest_wait(ask("slow"))
        assert time.monotonic() - started_s >= 2.0
        assert (await ask("quick")).status_code == 200
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "messages")
    assert "takes too long" in error["message"]
    assert worst_s < 1.5


async def ids_by(
    work: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch, *, characters: int = 10
) -> list[int]:
    """The ids of a chat that is rendered by `work`, which takes the limit in seconds."""
    monkeypatch.setattr(
        prompts, "conversation_ids", lambda *_, limit_s, limit_tokens: work(limit_s)
    )
    service: Any = SimpleNamespace(
        tokenizer=None, tool_format=None, info=SimpleNamespace(max_model_len=8)
    )
    messages = [{"role": "user", "content": "x" * characters}]
    return await chat_ids(service, parse(ChatCompletionRequest, {"messages": messages}))


async def test_a_template_that_needs_a_little_more_time_gets_it_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []

    def work(limit_s: float) -> list[int]:
        limits.append(limit_s)
        if limit_s < 1.0:
            raise TemplateTimeoutError
        return [7]

    assert await ids_by(work, monkeypatch) == [7]
    assert limits == [prompts.INLINE_S, prompts.RENDER_S]


async def test_a_long_text_goes_to_a_thread_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(limit_s: float) -> list[int]:
        assert limit_s == prompts.RENDER_S
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return [7]

    assert await ids_by(work, monkeypatch, characters=10**6) == [7]


async def test_what_the_template_refuses_is_not_tried_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def work(limit_s: float) -> list[int]:
        nonlocal calls
        calls += 1
        raise InvalidRequestError("no", param="messages")

    with pytest.raises(InvalidRequestError):
        await ids_by(work, monkeypatch)
    assert calls == 1


async def test_the_operator_s_template_replaces_the_model_s(tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    async with running(tmp_path, says("x"), chat_template=file) as app:
        await app.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert app.prompt == "[hi]"


async def test_an_operator_s_template_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"own\.jinja cannot be read") as refused:
        async with running(tmp_path, says("x"), chat_template=tmp_path / "own.jinja"):
            pass
    assert str(tmp_path) not in refused.value.message


async def test_unknown_parsers_are_named_at_the_start(tmp_path: Path) -> None:
    for settings in ({"tool_call_parser": "x"}, {"reasoning_parser": "x"}):
        with pytest.raises(InvalidRequestError, match="There is no"):
            async with running(tmp_path, says("x"), **settings):
                pass


async def test_a_long_conversation_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [{"role": "user", "content": "word " * 60_000}]
    async with running(tmp_path, says("x")) as app:
        monkeypatch.setattr(app.service.tokenizer, "encode", None)
        answer = await app.post("/v1/chat/completions", {"messages": messages})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == "messages"
