import random

import pytest

from engine.text.tools.reading import pieces, read
from yaie.text.tools import ToolSpec, format_for
from yaie.text.tools.only_calls import OnlyCalls

SPECS = [ToolSpec("f")]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.parametrize("end", range(len(CALL) + 1))
def test_wherever_the_end_cuts_there_is_a_call_or_nothing(end: int) -> None:
    parser = OnlyCalls(format_for(None).parser(SPECS, enforced=True))
    found = read(parser, pieces("\n" + CALL[:end], random.Random(end), longest=5))
    assert [kind for kind, *_ in found] in ([], ["call"])
    assert bool(found) == (end > CALL.index('{"a"'))


def test_blanks_between_calls_are_no_text() -> None:
    parser = OnlyCalls(format_for(None).parser(SPECS))
    assert read(parser, [f" {CALL}\n \n{CALL}\n"]) == [("call", "f", '{"a": 1}')] * 2


def test_the_format_s_tags_are_shown_to_the_parser() -> None:
    assert OnlyCalls(format_for(None).parser(SPECS)).shown_special_tokens >= {"<tool_call>"}
