"""What people read of the logs."""

import json

import pytest

from yaie.cli.local.log_lines import by_time, merged, rendered


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def line(second: int, message: str = "m", *, pod: str = "", **keys: object) -> bytes:
    head = {"time": f"2026-01-31T12:00:{second:02}.000Z", "level": "info", "logger": "yaie.x"}
    text = json.dumps(head | {"message": message} | keys)
    return f"[{pod}] {text}\n".encode() if pod else f"{text}\n".encode()


def test_a_line_is_time_level_message_and_keys() -> None:
    text = rendered(
        line(7, "model ready", url="http://x", name="a b", share=0.123456), colours=False
    )
    assert text == '12:00:07 INFO    model ready  url=http://x  name="a b"  share=0.1235'


def test_a_line_of_one_of_several_pods_begins_with_it() -> None:
    assert rendered(line(1, pod="demo-1"), colours=False) == "[demo-1] 12:00:01 INFO    m"


def test_levels_have_colours_and_what_matters_less_is_dim() -> None:
    text = rendered(line(1, level="error", key=1), colours=True)
    assert "\033[31mERROR  \033[0m m\033[2m  key=1\033[0m" in text
    assert "\033" not in rendered(line(1, level="error", key=1), colours=False)


@pytest.mark.parametrize("text", [b"plain text\n", b'{"broken\n', b"[1, 2]\n", b'{"a": 1}\n'])
def test_lines_of_another_format_stay_as_they_are(text: bytes) -> None:
    assert rendered(text, colours=False) == text.decode().rstrip("\n")


def test_no_line_can_move_the_cursor_or_forge_another_line() -> None:
    for hostile in (b"\x1b[2Jgone\n", line(1, "a\x1b[2J\nb", key="\x1b]0;t\x07")):
        text = rendered(hostile, colours=False)
        assert "\x1b" not in text
        assert "\n" not in text


def test_a_traceback_stands_below_its_line() -> None:
    text = rendered(line(1, "failed", exception="Traceback:\n  x\nValueError: y"), colours=False)
    assert text.splitlines() == ["12:00:01 INFO    failed", "Traceback:", "  x", "ValueError: y"]


def test_lines_of_several_pods_are_merged_by_time() -> None:
    first = [line(1, pod="a"), b"[a] text after it\n", line(4, pod="a")]
    second = [line(2, pod="b"), line(3, pod="b")]
    found = list(merged([first, second]))
    assert found == [first[0], first[1], second[0], second[1], first[2]]
    assert by_time([*second, line(1)]) == [line(1), *second]


def test_lines_without_a_time_stay_with_their_pod() -> None:
    assert list(merged([[b"a1\n", b"a2\n"], [b"b1\n"]])) == [b"a1\n", b"a2\n", b"b1\n"]
