"""Answers on a terminal end their lines between words, whatever pieces they come in."""

import io
import random
import re
import textwrap

import pytest

from yaie.cli.chat.text import TextWriter
from yaie.cli.chat.wrap import Wrapper

PROSE = (
    "A pod is the smallest unit that Kubernetes runs; it holds one or more containers that share a "
    "network address, and volumes. Deployments, StatefulSets and Jobs create pods for you."
)


def shown(text: str, columns: int = 40, *, seed: int = 0) -> list[str]:
    """The lines on a terminal after the text came in random pieces."""
    wrapper, rng, lines = Wrapper(lambda: columns), random.Random(seed), [""]
    while text:
        size = rng.randint(1, 7)
        piece, text = text[:size], text[size:]
        for part in re.findall(r"\033\[\d*[DK]|.|\n", wrapper.feed(piece)):
            if part.endswith("D") and len(part) > 1:
                lines[-1] = lines[-1][: len(lines[-1]) - int(part[2:-1])]
            elif part == "\n":
                lines.append("")
            elif part != "\033[K":
                lines[-1] += part
    return lines


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("columns", [21, 33, 80, 200])
def test_lines_are_those_of_a_text_that_is_wrapped_at_once(columns: int, seed: int) -> None:
    found = [line.rstrip() for line in shown(PROSE, columns, seed=seed)]
    assert found == textwrap.wrap(PROSE, columns - 1, break_on_hyphens=False)


def test_a_word_longer_than_a_line_goes_on_in_the_next() -> None:
    assert shown("see " + "x" * 50, 31) == ["see ", "x" * 30, "x" * 20]


def test_code_blocks_and_tables_are_not_touched() -> None:
    code = "```python\n" + "call(argument, another_argument, " * 4 + ")\n```"
    table = "| a long cell | another long cell | and one more |"
    text = f"{code}\n{table}\n{PROSE}"
    lines = shown(text)
    assert lines[:4] == [*code.split("\n"), table]
    assert max(map(len, lines[4:])) < 40


def test_wide_characters_take_two_columns_and_end_a_line_anywhere() -> None:
    assert shown("模" * 25, 22) == ["模" * 10, "模" * 10, "模" * 5]


def test_line_breaks_of_the_answer_stay() -> None:
    assert shown("one\n\ntwo\n") == ["one", "", "two", ""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        TextWriter(stream).write(PROSE)
    assert pipe.getvalue() == PROSE
    assert terminal.getvalue() != PROSE
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    TextWriter(dumb).write(PROSE)
    assert dumb.getvalue() == PROSE
