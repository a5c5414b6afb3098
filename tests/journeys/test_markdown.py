"""What a model writes is drawn piece by piece, and is never markup."""

import pytest

from journeys.browser import Browser
from journeys.steps import HOSTILE, visit

pytestmark = pytest.mark.journey


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
