"""Light and dark, narrow and wide: nothing overflows, and axe-core finds nothing to object to."""

from pathlib import Path

import pytest

from docs.pages import ROOT
from journeys.browser import Browser
from journeys.steps import HOSTILE, ask, ended, visit

pytestmark = pytest.mark.journey
AXE = next(ROOT.glob(".cache/axe-core-*/axe.min.js"), None)


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
    if AXE is None:
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
