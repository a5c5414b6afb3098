"""Drops a conversation's oldest items until its prompt fits the context: `truncation: auto`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Item = dict[str, Any]


async def shortened(
    items: Sequence[Item], fits: Callable[[list[Item]], Awaitable[bool]]
) -> list[Item] | None:
    """Return the conversation without as few of its oldest items as possible; None: what must stay
    does not fit either. Stays: system messages at the beginning, the last message of the user, the
    last item. The output of a call goes with the call.

    `fits`: whether the prompt of these items fits; it is asked about a logarithm of their number.
    """
    old = _droppable(items)
    low, high = 1, len(old)
    if not old or not await fits(without(items, old)):
        return None
    while low < high:
        middle = (low + high) // 2
        if await fits(without(items, old[:middle])):
            high = middle
        else:
            low = middle + 1
    return without(items, old[:high])


def _droppable(items: Sequence[Item]) -> list[int]:
    """Places of the items that may be dropped, the oldest first."""
    first = 0
    while first < len(items) and items[first].get("role") in ("system", "developer"):
        first += 1
    users = [place for place, item in enumerate(items) if item.get("role") == "user"]
    stays = {users[-1] if users else -1, len(items) - 1}
    last = items[-1] if items else {}
    if _is_output(last):
        stays |= {n for n, one in enumerate(items) if one.get("call_id") == last.get("call_id")}
    return [place for place in range(first, len(items)) if place not in stays]


def without(items: Sequence[Item], dropped: Sequence[int]) -> list[Item]:
    """Return the items without those at these places, and without outputs of dropped calls."""
    gone = set(dropped)
    calls = {
        items[place].get("call_id")
        for place in gone
        if items[place].get("call_id") is not None and not _is_output(items[place])
    }
    return [
        item
        for place, item in enumerate(items)
        if place not in gone and not (_is_output(item) and item.get("call_id") in calls)
    ]


def _is_output(item: Item) -> bool:
    return str(item.get("type", "")).endswith("_output")
