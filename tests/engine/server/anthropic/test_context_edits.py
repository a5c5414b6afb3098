"""What context edits take out of a conversation, and what they leave."""

from typing import Any

import pytest

from yaie.server.anthropic.context_edits import (
    CLEARED,
    clear_thinking,
    clear_tool_uses,
    is_pulled,
)
from yaie_api.errors import InvalidRequestError
from yaie_api.http.anthropic import ContextEdit, Turn
from yaie_api.http.wire import parse


def turn(role: str, *blocks: Any) -> Turn:
    return parse(Turn, {"role": role, "content": list(blocks)})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": ""}


def use(number: int, name: str = "read") -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"path": str(number)}}


def result(number: int) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"file {number}"}


def thinking_edit(**fields: Any) -> ContextEdit:
    return parse(ContextEdit, {"type": "clear_thinking_20251015"} | fields)


def uses_edit(**fields: Any) -> ContextEdit:
    return parse(ContextEdit, {"type": "clear_tool_uses_20250919"} | fields)


THINKING = [
    turn("user", text("one")),
    turn("assistant", thought("a"), use(1)),
    turn("user", result(1)),
    turn("assistant", thought("b"), text("Done.")),
    turn("user", text("two")),
    turn("assistant", thought("c"), text("Yes.")),
    turn("user", text("three")),
]
READING = [
    block
    for n in range(6)
    for block in (turn("assistant", use(n, "keep" if n == 1 else "read")), turn("user", result(n)))
]


def blocks_of(turns: list[Turn], kind: str) -> list[Any]:
    return [b for t in turns for b in t.content if isinstance(b, dict) and b.get("type") == kind]


def test_thinking_of_older_turns_goes_and_a_turn_lasts_through_its_calls() -> None:
    cleared = clear_thinking(THINKING, thinking_edit())
    assert cleared.count == 1
    assert [b["thinking"] for b in blocks_of(cleared.turns, "thinking")] == ["c"]
    assert len(blocks_of(cleared.turns, "tool_use")) == 1
    two = {"type": "thinking_turns", "value": 2}
    assert clear_thinking(THINKING, thinking_edit(keep=two)).count == 0


@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
def test_all_thinking_can_stay(keep: Any) -> None:
    cleared = clear_thinking(THINKING, thinking_edit(keep=keep))
    assert (cleared.turns, cleared.count) == (THINKING, 0)


def test_results_of_older_uses_are_replaced_and_the_last_three_stay() -> None:
    cleared = clear_tool_uses(READING, uses_edit())
    told = [block["content"] for block in blocks_of(cleared.turns, "tool_result")]
    assert told == [CLEARED] * 3 + ["file 3", "file 4", "file 5"]
    assert cleared.count == 3
    assert all(block["input"] for block in blocks_of(cleared.turns, "tool_use"))


def test_excluded_tools_stay_and_inputs_go_where_that_is_asked() -> None:
    keep = {"type": "tool_uses", "value": 2}
    edit = uses_edit(keep=keep, exclude_tools=["keep"], clear_tool_inputs=True)
    cleared = clear_tool_uses(READING, edit)
    told = [block["content"] == CLEARED for block in blocks_of(cleared.turns, "tool_result")]
    assert told == [True, False, True, True, False, False]
    inputs = [block["input"] for block in blocks_of(cleared.turns, "tool_use")]
    assert [not one for one in inputs] == told
    some = uses_edit(keep=keep, clear_tool_inputs=["keep"])
    inputs = [b["input"] for b in blocks_of(clear_tool_uses(READING, some).turns, "tool_use")]
    assert [not one for one in inputs] == [False, True, False, False, False, False]


def test_what_was_cleared_is_not_cleared_again() -> None:
    once = clear_tool_uses(READING, uses_edit())
    assert clear_tool_uses(once.turns, uses_edit()).count == 0


def test_a_trigger_counts_tokens_or_uses() -> None:
    assert is_pulled(uses_edit(), READING, 100_001)
    assert not is_pulled(uses_edit(), READING, 100_000)
    assert is_pulled(uses_edit(trigger={"type": "tool_uses", "value": 5}), READING, 1)
    assert not is_pulled(uses_edit(trigger={"type": "tool_uses", "value": 6}), READING, 1)


def test_numbers_of_the_wrong_thing_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="thinking_turns"):
        clear_thinking(THINKING, thinking_edit(keep={"type": "tool_uses", "value": 1}))
    with pytest.raises(InvalidRequestError, match="tool_uses"):
        clear_tool_uses(READING, uses_edit(keep="all"))
    with pytest.raises(InvalidRequestError, match="trigger"):
        is_pulled(uses_edit(trigger={"type": "thinking_turns", "value": 1}), READING, 1)
