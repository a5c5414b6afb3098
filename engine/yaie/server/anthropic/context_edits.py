"""Edits a conversation before the model sees it: Anthropic's `context_management`. Pure.

`clear_thinking` takes the thinking of older turns out, `clear_tool_uses` the results of older calls
(and, if asked, their inputs). A turn of the assistant goes on through the results of its calls.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from yaie_api.errors import InvalidRequestError
from yaie_api.http.anthropic import Amount, ContextEdit, Turn

CLEARED: Final = "[The result of this call was cleared to save space.]"
KEPT_USES: Final = 3
TRIGGER_TOKENS: Final = 100_000
KEPT_TURNS: Final = 1
_THINKING: Final = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Cleared:
    """A conversation after an edit, and how many turns of thinking or uses of tools it lost."""

    turns: list[Turn]
    count: int


def clear_thinking(turns: Sequence[Turn], edit: ContextEdit) -> Cleared:
    """Take out the thinking of all but the last turns of the assistant.

    Raises:
        InvalidRequestError: `keep` is wrong.

    """
    keep = edit.keep or Amount(type="thinking_turns", value=KEPT_TURNS)
    if not isinstance(keep, Amount):
        return Cleared(list(turns), 0)
    if keep.type != "thinking_turns" or keep.value < 1:
        raise _wrong("clear_thinking keeps a number of thinking_turns, 1 or more, or all.")
    thinking = [place for place in _assistant_turns(turns) if _thinks(turns, place)]
    old = [number for place in thinking[: -keep.value] for number in place]
    found = list(turns)
    for number in old:
        found[number] = _without_thinking(turns[number])
    return Cleared(found, max(0, len(thinking) - keep.value))


def clear_tool_uses(turns: Sequence[Turn], edit: ContextEdit) -> Cleared:
    """Replace the results of all but the last uses of tools. Whether its trigger is pulled, the
    caller says.

    Raises:
        InvalidRequestError: `keep` is wrong.

    """
    keep = edit.keep or Amount(type="tool_uses", value=KEPT_USES)
    if not isinstance(keep, Amount) or keep.type != "tool_uses":
        raise _wrong("clear_tool_uses keeps a number of tool_uses.")
    uses = _uses(turns)
    excluded = frozenset(edit.exclude_tools or ())
    done = set(_answered(turns))
    old = [use for use in list(uses)[: max(0, len(uses) - keep.value)] if use in done]
    ids = {use for use in old if uses[use] not in excluded}
    if not ids:
        return Cleared(list(turns), 0)
    inputs = ids if edit.clear_tool_inputs is True else set()
    if isinstance(edit.clear_tool_inputs, list):
        inputs = {use for use in ids if uses[use] in edit.clear_tool_inputs}
    return Cleared([_cleared(turn, ids, inputs) for turn in turns], len(ids))


def is_pulled(edit: ContextEdit, turns: Sequence[Turn], num_tokens: int) -> bool:
    """Whether the trigger of `clear_tool_uses` is pulled by a conversation of so many tokens.

    Raises:
        InvalidRequestError: the trigger is wrong.

    """
    trigger = edit.trigger or Amount(type="input_tokens", value=TRIGGER_TOKENS)
    if trigger.type == "input_tokens":
        return num_tokens > trigger.value
    if trigger.type == "tool_uses":
        return len(_uses(turns)) > trigger.value
    raise _wrong("a trigger counts input_tokens or tool_uses.")


def _assistant_turns(turns: Sequence[Turn]) -> list[list[int]]:
    """Places of each turn of the assistant."""
    found: list[list[int]] = []
    goes_on = False
    for number, turn in enumerate(turns):
        if turn.role == "assistant":
            if not goes_on:
                found.append([])
            found[-1].append(number)
            goes_on = True
        elif not _only_results(turn):
            goes_on = False
    return found


def _only_results(turn: Turn) -> bool:
    blocks = list(_blocks(turn))
    return bool(blocks) and all(block.get("type") == "tool_result" for block in blocks)


def _thinks(turns: Sequence[Turn], place: Sequence[int]) -> bool:
    return any(block.get("type") in _THINKING for n in place for block in _blocks(turns[n]))


def _without_thinking(turn: Turn) -> Turn:
    if isinstance(turn.content, str):
        return turn
    kept = [block for block in turn.content if block.get("type") not in _THINKING]
    return turn.model_copy(update={"content": kept})


def _uses(turns: Sequence[Turn]) -> dict[str, str]:
    """Ids of the uses of tools, in order → names of the tools."""
    return {
        str(block.get("id")): str(block.get("name"))
        for turn in turns
        for block in _blocks(turn)
        if block.get("type") == "tool_use"
    }


def _answered(turns: Sequence[Turn]) -> Iterator[str]:
    """Ids of the uses whose results are there."""
    for turn in turns:
        for block in _blocks(turn):
            if block.get("type") == "tool_result" and block.get("content") != CLEARED:
                yield str(block.get("tool_use_id"))


def _cleared(turn: Turn, results: Collection[str], inputs: Collection[str]) -> Turn:
    if isinstance(turn.content, str):
        return turn
    blocks: list[dict[str, Any]] = []
    for block in turn.content:
        changed = dict(block)
        if block.get("type") == "tool_result" and block.get("tool_use_id") in results:
            changed["content"] = CLEARED
        if block.get("type") == "tool_use" and block.get("id") in inputs:
            changed["input"] = {}
        blocks.append(changed)
    return turn.model_copy(update={"content": blocks})


def _blocks(turn: Turn) -> Sequence[Mapping[str, Any]]:
    return () if isinstance(turn.content, str) else turn.content


def _wrong(text: str) -> InvalidRequestError:
    return InvalidRequestError(text, param="context_management")
