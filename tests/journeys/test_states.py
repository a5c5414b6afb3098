"""What the page says of models and answers that are not as one would wish."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.server.running import serving
from journeys.browser import ENTER, Browser
from journeys.canned import answering, delta
from journeys.steps import answer, ask, ended, visit

pytestmark = pytest.mark.journey


def expected(page: Browser, *statuses: int) -> None:
    """The console has shown these refusals, of which a browser always tells, and nothing else."""
    told = page.errors()
    assert told
    assert all(re.search(rf"status of ({'|'.join(map(str, statuses))}) ", one) for one in told), (
        told
    )


def test_a_server_with_keys_asks_for_one(page: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "--api-key", "secret-key") as server:
        server.wait_ready()
        visit(page, server.url, "#question")
        page.until(lambda: page.focused() == "key")
        assert "key is required" in page.text("#models-state")
        page.press(*"wrong", ENTER)
        page.until(lambda: page.focused() == "key")
        page.run("document.getElementById('key').value = ''")
        page.press(*"secret-key", ENTER)
        page.until(lambda: page.shown("#models input"))
        ask(page, "hello there")
        assert "user" in page.until(lambda: answer(page))
        ended(page)
        assert "secret-key" not in page.run("return document.body.textContent")
        assert page.run("return [localStorage.length, document.cookie]") == [0, ""]
        assert "YAIE_API_KEY" in page.text("#examples")
        expected(page, 401)
        page.go(f"{server.url}/docs")
        page.until(lambda: page.focused() == "key")
        assert "YAIE_API_KEY" in page.text("article pre")
        assert "{model}" in page.text("main")
        page.press(*"secret-key", ENTER)
        page.until(lambda: not page.shown("#access"))
        assert "YAIE_API_KEY" in page.text("article pre")
        assert '"model":"stub"' in page.text("main")
        assert len(page.run("return document.querySelectorAll('#list > h2')")) < 12
        expected(page, 401)


def test_a_model_that_loads_is_awaited(page: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, engine=["--loading-s", "2"]) as server:
        visit(page, server.url, "#notice")
        page.until(lambda: "It is at: weights." in page.text("#notice"))
        page.until(lambda: page.shown("#models input"))
        assert not page.shown("#notice")
        ask(page, "refuse this")
        page.until(lambda: page.shown(".error"))
        assert "queue" in page.text(".error")
        ask(page, "hello there")
        page.until(lambda: answer(page))
        expected(page, 503, 429)


def test_a_model_that_does_not_generate_offers_no_chat(page: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, engine=["--tasks", "embed"]) as server:
        server.wait_ready()
        visit(page, server.url)
        assert "does not chat" in page.text("#notice")
        assert "/v1/embeddings" in page.text("#examples")
        assert page.run("return document.getElementById('send').disabled")


def test_reasoning_and_calls_are_shown_apart_from_the_answer(page: Browser) -> None:
    call = {"index": 0, "function": {"name": "get_weather", "arguments": '{"city": '}}
    rest = {"index": 0, "function": {"arguments": '"Oslo"}'}}
    events = [
        delta(role="assistant", content=""),
        delta(reasoning_content="They ask "),
        delta(reasoning_content="for weather."),
        delta(1, content="another output"),
        delta(content="I look."),
        delta(tool_calls=[call]),
        delta(tool_calls=[rest], finish="tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ]
    with answering(*events) as url:
        visit(page, url)
        ask(page, "What is the weather?")
        assert "1 prompt token, 0 cached" in ended(page)
        assert page.text(".reasoning > div") == "They ask for weather."
        assert not page.shown(".reasoning > div")
        assert page.text(".answer > .text") == "I look."
        assert page.text(".answer pre") == 'get_weather({"city": "Oslo"})'


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (delta(content="half of "), "The answer broke off before its end."),
        ({"error": {"message": "The engine failed."}}, "The engine failed."),
    ],
)
def test_an_answer_that_fails_says_why_and_can_be_asked_for_again(
    page: Browser, event: dict[str, Any], told: str
) -> None:
    with answering(delta(content="a"), event, ends=False) as url:
        visit(page, url)
        ask(page, "hello")
        page.until(lambda: page.shown(".error"))
        assert page.text(".error p") == told
        assert answer(page).startswith("a")
        page.click(".error button")
        ended(page)
        page.until(lambda: page.shown(".error"))
        assert page.run("return document.querySelectorAll('.ask').length") == 1
        assert page.run("return turns.length") == 1


def test_a_model_of_which_the_server_says_that_it_does_not_chat_is_remembered(
    page: Browser,
) -> None:
    refusal = {"message": "This model cannot generate text.", "code": "task_not_supported"}
    with answering(refusal=refusal) as url:
        visit(page, url)
        ask(page, "hello")
        page.until(lambda: "does not chat" in page.text("#notice"))
        assert page.text(".error p") == refusal["message"]
        assert "/v1/embeddings" in page.text("#examples")
        assert page.run("return document.getElementById('send').disabled")
        expected(page, 400)


def test_models_are_listed_with_what_each_awaits(page: Browser, shots: Path) -> None:
    models = [
        {"id": "big", "root": "big", "state": "ready", "engines": 4, "max_model_len": 131072},
        {"id": "gpt-4", "root": "big", "state": "ready", "engines": 4},
        {"id": "next", "root": "next", "state": "waiting", "reason": "it is scaled to zero"},
        {"id": "vectors", "root": "vectors", "state": "ready", "tasks": ["embed"]},
    ]
    with answering(models=models) as url:
        visit(page, url)
        states = "return [...document.querySelectorAll('.state')].map((one) => one.textContent)"
        assert page.run(states) == [
            "ready · context 131,072 · 4 engines",
            "ready · alias of big · 4 engines",
            "waiting: it is scaled to zero",
            "ready · does not chat",
        ]
        page.click("input[value=next]")
        assert page.text("#notice") == "next is not ready: it is scaled to zero."
        assert '"model": "next"' in page.text("#examples")
        page.screenshot(shots / "models.png")


def test_a_server_that_is_gone_is_told_and_awaited(page: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        visit(page, server.url)
        server.process.kill()
        server.process.wait()
        ask(page, "hello there")
        page.until(lambda: page.shown(".error"))
        assert page.text(".error p") == "The server cannot be reached."
        assert page.shown("#models input")
        assert all("ERR_CONNECTION_REFUSED" in one for one in page.errors())
