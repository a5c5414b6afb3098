"""The page at `/docs` shows the whole description of the API."""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from journeys.browser import Browser
from journeys.steps import visit

pytestmark = pytest.mark.journey


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
