import io
import json
import logging
from collections.abc import Iterator

import pytest

from yaie_api import logs


@pytest.fixture(autouse=True)
def restore_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def capture(log_format: logs.LogFormat) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(log_format=log_format, stream=stream)
    return stream


def test_json_lines_carry_message_keys_and_the_request_id() -> None:
    stream = capture("json")
    token = logs.request_id.set("req-1")
    logging.getLogger("yaie.test").info("model ready", extra=logs.fields(model="demo", name="x"))
    logs.request_id.reset(token)
    entry = json.loads(stream.getvalue())
    assert entry["message"] == "model ready"
    assert entry["request_id"] == "req-1"
    assert (entry["model"], entry["name"], entry["level"]) == ("demo", "x", "info")
    assert entry["time"].endswith("Z")


def test_a_stream_that_is_no_terminal_gets_json() -> None:
    stream = capture("auto")
    logging.getLogger("yaie.test").warning("hello")
    assert json.loads(stream.getvalue())["level"] == "warning"


def test_text_shows_keys_and_escapes_line_breaks_in_values() -> None:
    stream = capture("text")
    logging.getLogger("yaie.test").info("refused", extra=logs.fields(reason="a\nfake INFO line"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith('yaie.test: refused  reason="a\\nfake INFO line"')


def test_configuring_twice_does_not_double_the_lines() -> None:
    capture("json")
    stream = capture("json")
    logging.getLogger("yaie.test").info("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_exceptions_are_part_of_the_json_entry() -> None:
    stream = capture("json")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("yaie.test").exception("step failed")
    assert "ValueError: invalid literal" in json.loads(stream.getvalue())["exception"]
