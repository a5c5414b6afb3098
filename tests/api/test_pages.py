"""The pages are static files without a foreign host, and only their own style and script apply."""

import base64
import hashlib
import re

import pytest

from yaie_api.http import pages
from yaie_api.http.pages import CHAT, DOCS

BOTH = pytest.mark.parametrize("page", [CHAT, DOCS])
HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def text_of(page: str) -> str:
    return pages.reply(page).body.decode()


@pytest.mark.parametrize(
    ("path", "accept", "found"),
    [
        ("/", HTML, CHAT),
        ("/", "application/json, text/html;q=0.1", CHAT),
        ("/", "TEXT/HTML ; charset=utf-8", CHAT),
        ("/", "*/*", None),
        ("/", "", None),
        ("/", "application/json", None),
        ("/", "text/html;q=0, */*", None),
        ("/", "text/html; q=0.000", None),
        ("/", ";;,,=", None),
        ("/docs", "*/*", DOCS),
        ("/docs/", HTML, None),
        ("/chat.html", HTML, None),
    ],
)
def test_a_browser_gets_a_page_and_a_program_does_not(
    path: str, accept: str, found: str | None
) -> None:
    assert pages.find(path, accept) == found


@BOTH
def test_the_headers_let_nothing_else_in(page: str) -> None:
    found = pages.reply(page)
    assert found.status == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cache-control"] == "no-cache"
    directives = dict(one.split(" ", 1) for one in policy_of(page))
    assert directives["default-src"] == "'none'"
    assert directives["connect-src"] == "'self'"
    assert directives["frame-ancestors"] == "'none'"
    assert "unsafe" not in " ".join(policy_of(page))


def policy_of(page: str) -> list[str]:
    return pages.reply(page).headers["content-security-policy"].split("; ")


@BOTH
@pytest.mark.parametrize("kind", ["script", "style"])
def test_each_inline_block_is_known_by_its_hash(page: str, kind: str) -> None:
    blocks = re.findall(rf"<{kind}\b[^>]*>(.*?)</{kind}>", text_of(page), re.DOTALL)
    assert len(blocks) == 1
    digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
    assert f"{kind}-src 'sha256-{digest}'" in policy_of(page)


def test_a_file_without_blocks_may_run_nothing() -> None:
    assert "script-src 'none'; style-src 'none'" in pages.policy(b"<p>hello</p>")


@BOTH
def test_no_foreign_host_is_named(page: str) -> None:
    # A namespace is a name, and the patterns of the page's own code are no addresses.
    text = text_of(page).replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:https?:|wss?:)?//[\w-]+\.\w+", text) == []
    assert re.findall(r"(?:src|action)=", text) == []
    assert "@import" not in text
    assert "url(" not in text


@BOTH
def test_nothing_needs_what_the_policy_forbids(page: str) -> None:
    markup = re.sub(r"<(script|style)>.*?</\1>", "", text_of(page), flags=re.DOTALL)
    assert re.findall(r"\son\w+=|\sstyle=|javascript:", markup) == []
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert re.findall(sinks, text_of(page)) == []


@BOTH
def test_nothing_is_kept_in_the_browser(page: str) -> None:
    assert re.findall(r"localStorage|sessionStorage|indexedDB|cookie", text_of(page)) == []


@BOTH
def test_a_browser_that_has_the_page_gets_304(page: str) -> None:
    tag = pages.reply(page).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        found = pages.reply(page, known)
        assert (found.status, found.body) == (304, b"")
        assert found.headers["etag"] == tag
    assert pages.reply(page, '"other"').status == 200


def test_the_two_pages_look_alike() -> None:
    pattern = re.compile(r":root \{.*?\n\}\n@media.*?\n\}\n", re.DOTALL)
    assert pattern.findall(text_of(CHAT))
    assert pattern.findall(text_of(CHAT)) == pattern.findall(text_of(DOCS))
