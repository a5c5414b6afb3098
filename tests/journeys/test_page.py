"""The page at `/` in a real browser: what a person does there."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from docs.pages import ROOT
from journeys.browser import ENTER, ESCAPE, SHIFT, TAB, Browser
from journeys.conftest import ENVIRONMENT
from journeys.steps import answer, ask, ended, visit

pytestmark = pytest.mark.journey
LONG = '{"ignore_eos": true, "max_tokens": 3000}'


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
    page.until(lambda: running(url) == 1)
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


def test_who_scrolls_up_is_left_alone(page: Browser, url: str) -> None:
    visit(page, url)
    page.write("[name=others]", '{"ignore_eos": true, "max_tokens": 1500}')
    ask(page, "Tell me a story.")
    low = "return document.documentElement.scrollHeight - innerHeight - scrollY"
    page.until(lambda: page.run("return scrollY") > 400)
    assert page.run(low) < 80
    page.run("scrollTo(0, 100)")
    written = len(answer(page))
    page.until(lambda: len(answer(page)) > written + 100)
    assert page.run("return scrollY") == 100
    page.click("#stop")
    ended(page)
    assert page.run("return scrollY") == 100


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
