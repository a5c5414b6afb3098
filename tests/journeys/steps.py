"""What a person does on the page, step by step."""

from pathlib import Path

from journeys.browser import ENTER, Browser

HOSTILE = Path(__file__).with_name("hostile.md").read_text()
"""Markdown of every kind, half of it broken, and markup that must stay text."""


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
