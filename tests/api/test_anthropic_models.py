"""The list of models in Anthropic's form."""

from typing import Any

import pytest

from yaie_api.errors import InvalidRequestError
from yaie_api.http.anthropic_models import model, page

CARDS = [{"id": name, "created": 1_700_000_000, "max_model_len": 4096} for name in "abcde"]


def names(**query: str) -> tuple[list[str], bool]:
    found: dict[str, Any] = page(CARDS, query)
    ids = [one["id"] for one in found["data"]]
    assert (found["first_id"], found["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
    return ids, found["has_more"]


def test_a_model_has_a_name_to_show_and_a_date() -> None:
    found = model(CARDS[0])
    assert (found["type"], found["id"], found["display_name"]) == ("model", "a", "a")
    assert found["created_at"] == "2023-11-14T22:13:20Z"
    assert found["max_input_tokens"] == 4096
    assert model({"id": "a", "created": 0})["max_input_tokens"] is None


def test_pages_go_forward_and_back() -> None:
    assert names() == (list("abcde"), False)
    assert names(limit="2") == (["a", "b"], True)
    assert names(limit="2", after_id="b") == (["c", "d"], True)
    assert names(limit="2", after_id="c") == (["d", "e"], False)
    assert names(limit="2", before_id="d") == (["b", "c"], True)
    assert names(limit="3", before_id="b") == (["a"], False)
    assert names(after_id="e") == ([], False)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "1001", "9" * 5000, "²"])
def test_a_limit_is_a_number_within_bounds(limit: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        page(CARDS, {"limit": limit})
    assert caught.value.param == "limit"
