import asyncio
import io

import pytest

from yaie.cli.chat.client import AnswerStats, ChatError, _Meter, base_url, message_of
from yaie.cli.chat.repl import read_message
from yaie.cli.chat.text import TextWriter, harmless


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://h:1/", "http://h:1"),
        ("https://h/v1", "https://h"),
        ("https://h/prefix/v1/", "https://h/prefix"),
    ],
)
def test_endpoints_are_normalised(endpoint: str, base: str) -> None:
    assert base_url(endpoint) == base


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "too long", "code": 1}}, "too long"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"detail": "x"}, "{'detail': 'x'}"),
    ],
)
def test_error_bodies_of_several_servers_are_read(body: dict[str, object], message: str) -> None:
    assert message_of(body) == message


def test_the_rate_leaves_the_first_token_out() -> None:
    stats = AnswerStats(ttft_s=1.0, seconds=3.0, tokens=21)
    assert stats.tokens_per_s == 10.0
    assert str(stats) == "TTFT 1000 ms · 10.0 tokens/s"
    assert AnswerStats(ttft_s=1.0, seconds=1.0, tokens=1).tokens_per_s == 0.0


def test_events_of_other_servers_do_not_confuse_the_meter() -> None:
    meter = _Meter()
    assert meter.take({"choices": [{"delta": {"role": "assistant", "content": None}}]}) == ""
    assert meter.take({"choices": [{"delta": None}], "usage": None}) == ""
    assert meter.take({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}) == "x"
    assert meter.take({"usage": {"completion_tokens": 3}}) == ""
    assert (meter.stats().tokens, meter.stats().finish_reason) == (3, "stop")
    with pytest.raises(ChatError, match="broken"):
        meter.take({"error": {"message": "broken"}})


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert harmless("a\x1b]0;title\x07b\r\n\tc\x9b2J") == "a]0;titleb\n\tc2J"
    assert harmless("日本語 😀") == "日本語 😀"


def test_a_pipe_gets_the_text_as_it_is() -> None:
    stream = io.StringIO()
    writer = TextWriter(stream)
    writer.write("a\x1b[1m")
    writer.end_line()
    assert stream.getvalue() == "a\x1b[1m\n"


def reading(*lines: str) -> str | None:
    left = list(lines)

    async def reader(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return asyncio.run(read_message(reader))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["  hello "], "hello"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""', "one", "", "two", '"""'], "one\n\ntwo"),
        (['"""one line"""'], "one line"),
        ([], None),
        (['"""never closed'], None),
    ],
)
def test_messages_of_one_and_several_lines(lines: list[str], message: str | None) -> None:
    assert reading(*lines) == message
