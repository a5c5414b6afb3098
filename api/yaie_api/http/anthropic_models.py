"""The list of models in Anthropic's form. The engine and the router both answer with it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from yaie_api.errors import InvalidRequestError

MAX_LIMIT: Final = 1000
_LIMIT: Final = 20


def model(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return Anthropic's model object. `card`: OpenAI's, with `max_model_len` if it is known."""
    created = datetime.fromtimestamp(card["created"], UTC)
    longest = card.get("max_model_len")
    return {
        "type": "model",
        "id": card["id"],
        "display_name": card["id"],
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "max_input_tokens": longest,
        "max_tokens": longest,
        "capabilities": None,
        "line": None,
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
    }


def page(cards: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the list. `query`: the request's `limit`, `after_id` and `before_id`.

    Raises:
        InvalidRequestError: the limit is no number from 1 to MAX_LIMIT.

    """
    found = list(cards)
    names = [card["id"] for card in found]
    limit = _limit(query.get("limit"))
    after, before = query.get("after_id"), query.get("before_id")
    start = names.index(after) + 1 if after in names else 0
    end = names.index(before) if before in names else len(found)
    if before is not None and after is None:
        start = max(start, end - limit)
        has_more = start > 0
    else:
        has_more = end > start + limit
        end = min(end, start + limit)
    shown = [model(card) for card in found[start:end]]
    return {
        "data": shown,
        "has_more": has_more,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }


def _limit(given: str | None) -> int:
    if given is None:
        return _LIMIT
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= MAX_LIMIT):
        raise InvalidRequestError(f"limit is a number from 1 to {MAX_LIMIT}.", param="limit")
    return int(given)
