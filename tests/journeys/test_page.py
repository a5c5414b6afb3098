"""The page at `/` in a real browser: what a person does there, and what they must not meet."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from docs.pages import ROOT
from engine.server.running import serving
from journeys.browser import ENTER, ESCAPE, SHIFT, TAB, Browser
from journeys.canned import answering, delta
from journeys.conftest import ENVIRONMENT

pytestmark = pytest.mark.journey
AXE = ROOT / ".cache/axe-core-4.14.1/axe.min.js"
LONG = '{"ignore_eos": true, "max_tokens": 3000}'
HOSTILE = (Path(__file__).parent / "hostile.md").read_text()


def visit(page: Browser, url: str, ready: str = "#models input") -> None:
    page.go(url)
    page.until(lambda: page.shown(ready))


def ask(page: Browser, question: str) -> None:
    page.write("#question", question)
    page.press(ENTER)


def answer(page: Browser) -> str:
    """The text of the last answer so far."""
    script = "return [...document.querySelectorAll('.answer .text')].at(-1)?.textContent ?? ''"
    return str(page.run(script))


def ended(page: Browser) -> str:
    """The figures of the last answer, once it has ended."""
    script = "return [...document.querySelectorAll('.figures')].at(-1).textContent"
    return str(page.until(lambda: page.shown("#send") and page.run(script)))


def running(url: str) -> float:
    """Requests that the engine works on, as its metrics tell."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        found = re.search(r"\nyaie_engine_running_requests (\S+)\n", response.read().decode())
    assert found
    return float(found[1])


def report(name: str, value: float) -> None:
    """Shown by `pytest -s`."""
    sys.stderr.write(f"\n{name}: {value * 1000:.0f} ms\n")


def test_a_question_is_answered_while_it_is_written(page: Browser, url: str, shots: Path) -> None:
    visit(page, url)
    page.screenshot(shots / "start.png")
    page.write("[name=others]", '{"ignore_eos": true, "max_tokens": 150}')
    started = time.monotonic()
    ask(page, "What is Kubernetes?")
    page.until(lambda: answer(page))
    report("first text on the page", time.monotonic() - started)
    lengths = {len(answer(page))}
    while page.shown("#stop"):
        lengths.add(len(answer(page)))
    assert len(lengths) > 5
    assert answer(page).startswith("Kubernetes is")
    told = ended(page)
    assert re.search(r"first token after \d+ ms", told)
    assert re.search(r"[\d,]+ tokens/s", told)
    assert "150 tokens" in told
    assert page.text("#status") == "The answer is complete: 150 tokens."
    page.screenshot(shots / "answer.png")


def test_the_conversation_goes_on_and_its_prefix_is_cached(page: Browser, url: str) -> None:
    visit(page, url)
    ask(page, "What is a dog?")
    ended(page)
    ask(page, "And a cat?")
    page.until(lambda: page.run("return document.querySelectorAll('.answer').length") == 2)
    cached = re.search(r"([\d,]+) prompt tokens, ([\d,]+) cached", ended(page))
    assert cached
    assert int(cached[1]) > 20
    assert int(cached[2]) > 0
    page.click("#new")
    assert page.text("#turns") == ""
    assert page.focused() == "question"


def test_stop_ends_the_request_on_the_engine(page: Browser, url: str) -> None:
    visit(page, url)
    page.write("[name=others]", LONG)
    ask(page, "Tell me a story.")
    page.until(lambda: len(answer(page)) > 100)
    assert running(url) == 1
    page.click("#stop")
    clicked = time.monotonic()
    while running(url):
        assert time.monotonic() - clicked < 0.5
    report("from the click on Stop until nothing runs", time.monotonic() - clicked)
    assert "stopped" in ended(page)
    assert page.text("#status") == "Stopped."
    written = answer(page)
    time.sleep(0.2)
    assert answer(page) == written


def test_everything_can_be_done_with_the_keyboard(page: Browser, url: str) -> None:
    visit(page, url)
    assert page.focused() == "question"
    page.click("h1")
    page.press(TAB, hold=SHIFT)
    assert page.run("return document.activeElement.textContent") == "Skip to the question"
    seen = []
    for _ in range(30):
        page.press(TAB)
        seen.append(page.run("return document.activeElement.name || document.activeElement.id"))
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert seen[-1] == "question" or page.run(outline) != "none"
        if seen[-1] == "question":
            break
    parameters = ["system", "temperature", "top_p", "max_tokens", "seed", "others", "key"]
    assert [name for name in seen if name in ("model", "new", *parameters)] == [
        "new", "model", *parameters,
    ]  # fmt: skip
    page.press(*"one")
    page.press(ENTER, hold=SHIFT)
    page.press(*"two")
    assert page.run("return document.getElementById('question').value") == "one\ntwo"
    page.press(ENTER)
    page.until(lambda: answer(page))
    ended(page)
    assert page.text(".ask") == "one\ntwo"
    assert page.focused() == "question"
    page.run("document.querySelector('[name=others]').value = arguments[0]", LONG)
    page.press(*"go", ENTER)
    page.until(lambda: page.shown("#stop"))
    page.press(ESCAPE)
    page.until(lambda: page.text("#status") == "Stopped.")


def test_the_examples_run_as_they_stand(page: Browser, url: str) -> None:
    visit(page, url)
    page.write("[name=system]", "It's short.")
    page.write("[name=max_tokens]", "5")
    page.write("[name=others]", '{"top_k": 1, "stop": null, "ignore_eos": true}')
    script = "return [...document.querySelectorAll('#examples code')].map((c) => c.textContent)"
    curl, python = page.run(script)
    done = subprocess.run(["bash", "-c", curl], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 5
    command = [sys.executable, "-c", python]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=ENVIRONMENT)
    assert done.stdout.strip()


def test_a_wrong_parameter_is_told_before_anything_is_sent(page: Browser, url: str) -> None:
    visit(page, url)
    page.write("[name=others]", "[1]")
    ask(page, "hello")
    assert page.text("#status").startswith("Other fields are not a JSON object")
    assert page.run("return document.activeElement.name") == "others"
    page.run("document.querySelector('[name=others]').value = ''")
    page.write("[name=temperature]", "3")
    page.click("#send")
    assert page.run("return document.activeElement.name") == "temperature"
    assert page.text("#turns") == ""


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_it_fits_every_look_and_width(
    page: Browser, url: str, shots: Path, look: str, width: int
) -> None:
    page.look(look, width=width)
    visit(page, url, "#question")
    page.until(lambda: "yaie-demo" in page.text("#chosen"))
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (look == "light")
    ask(page, "What is Kubernetes?")
    ended(page)
    page.run(
        "const m = new Markdown(); document.querySelector('.answer').prepend(m.node);"
        "m.draw(arguments[0]); scrollTo(0, 0)",
        HOSTILE,
    )
    assert page.run("return document.documentElement.scrollWidth") <= width
    page.screenshot(shots / f"{look}-{width}.png")
    page.click("#new")
    page.screenshot(shots / f"{look}-{width}-start.png")


@pytest.mark.parametrize("path", ["/", "/docs"])
@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_axe_finds_nothing_serious(
    page: Browser, url: str, path: str, look: str, width: int
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not here: `make journeys` fetches it where npm is")
    page.look(look, width=width)
    if path == "/":
        visit(page, url, "#question")
        ask(page, "What is Kubernetes?")
        ended(page)
        page.run(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; });"
            "const m = new Markdown(); document.querySelector('.answer').prepend(m.node);"
            "m.draw(arguments[0])",
            HOSTILE,
        )
    else:
        visit(page, url + path, "article")
        page.run(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; });"
            "document.querySelector('.link').click()"
        )
        page.until(
            lambda: page.run("return !document.querySelector('details > summary:only-child')")
        )
    page.run(AXE.read_text())
    found = page.run("return axe.run({resultTypes: ['violations']}).then((r) => r.violations)")
    assert [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found] == []


def test_the_description_is_rendered(page: Browser, url: str, shots: Path) -> None:
    visit(page, f"{url}/docs", "article")
    assert page.text("#title") == "yaie engine"
    with urllib.request.urlopen(f"{url}/openapi.json") as response:
        document = json.load(response)
    listed = page.run("return [...document.querySelectorAll('article h3 code')].length")
    summaries = {
        (method, one["summary"])
        for path in document["paths"].values()
        for method, one in path.items()
    }
    assert listed == len(summaries)
    chat = f"#{document['paths']['/v1/chat/completions']['post']['operationId']}"
    page.click(f"{chat} summary")
    page.until(lambda: page.shown(f"{chat} dt"))
    fields = page.run(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)",
        f"{chat} dt > code:first-child",
    )
    schema = document["components"]["schemas"]["ChatCompletionRequest"]
    assert set(fields) == set(schema["properties"])
    page.screenshot(shots / "docs.png")
    curl = page.text(f"{chat} pre")
    done = subprocess.run(["bash", "-c", curl], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["choices"]


def test_a_text_that_grows_is_drawn_as_if_it_had_come_at_once(page: Browser, url: str) -> None:
    visit(page, url)
    script = """
        const text = arguments[0], once = new Markdown(), grown = new Markdown(), drawn = [];
        once.draw(text);
        for (let i = 0; i <= text.length; i += 1) grown.draw(text.slice(0, i));
        document.querySelector("#turns").append(once.node);
        return [once.node.outerHTML, grown.node.outerHTML];
    """
    once, grown = page.run(script, HOSTILE)
    assert once == grown
    assert "<script" not in once.replace("&lt;script", "")
    for tag in ("h3", "strong", "em", "s", "code", "ul", "ol", "blockquote", "table", "hr", "pre"):
        assert f"<{tag}" in once, tag
    links = page.run(
        "return [...document.querySelectorAll('#turns a')].map((a) => [a.href, a.rel])"
    )
    assert [href for href, _ in links] == [
        "https://example.com/a_(b)?c=d", "https://example.com/x", "https://example.com/a.png",
    ]  # fmt: skip
    assert {rel for _, rel in links} == {"noopener noreferrer"}
    assert page.run("return document.querySelectorAll('#turns img').length") == 0


@pytest.mark.parametrize(
    "piece", ["**a ", "*a", "_a _", "`", "[a](", "> ", "- ", "  1. ", "|-|\n", "~~~\n"]
)
def test_no_text_keeps_the_page_busy(page: Browser, url: str, piece: str) -> None:
    visit(page, url)
    script = "const start = performance.now(); new Markdown().draw(arguments[0]); "
    assert page.run(script + "return performance.now() - start", piece * 5000) < 1000


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
        page.press(*"secret-key", ENTER)
        page.until(lambda: page.shown("article"))
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


def test_through_a_router_the_page_is_the_same(page: Browser, tmp_path: Path, shots: Path) -> None:
    command = [sys.executable, "-m", "yaie", "up", "-f", str(ROOT / "manifests/samples/demo.yaml")]
    flags = ["--state-dir", str(tmp_path / "state"), "--port", "0", "--timeout", "60"]
    process = subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        url = next(line.split()[-1] for line in lines if "endpoint" in line).removesuffix("/v1")
        visit(page, url)
        page.until(lambda: "ready" in page.text(".state"))
        ask(page, "What is Kubernetes?")
        assert "tokens/s" in ended(page)
        page.screenshot(shots / "router.png")
        visit(page, f"{url}/docs", "article")
        assert page.text("#title") == "yaie router"
    finally:
        process.terminate()
        process.communicate(timeout=40)
