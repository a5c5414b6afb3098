import math

import pytest

from engine.text.vocabularies import byte_fallback, byte_level
from yaie.core.messages import TokenLogprobs
from yaie.server.openai.logprobs import (
    LOWEST,
    CompletionLogprobs,
    TokenForms,
    chat_logprobs,
    prompt_logprobs,
)
from yaie.text.prompt.tokenizer import Tokenizer

BYTES = Tokenizer(byte_level(), None)
PIECES = Tokenizer(byte_fallback(), None)


@pytest.mark.parametrize("text", ["hello, Köln 日本 😀", "stop and go"])
def test_bytes_of_tokens_make_the_text(text: str) -> None:
    forms = TokenForms(BYTES)
    assert b"".join(map(forms.bytes, BYTES.encode(text))).decode() == text


def test_a_piece_keeps_the_space_that_a_decoder_strips_at_the_beginning() -> None:
    forms = TokenForms(PIECES)
    ids = [PIECES.encode("hello")[0], byte_fallback().token_to_id("▁world")]
    world = ids[1]
    assert (forms.text(world), forms.bytes(world)) == (" world", b" world")


def test_a_byte_token_is_its_byte() -> None:
    forms = TokenForms(PIECES)
    token_id = byte_fallback().token_to_id("<0xE6>")
    assert forms.bytes(token_id) == b"\xe6"
    assert forms.text(token_id) == "\ufffd"


def test_infinity_is_a_number_that_json_has() -> None:
    entry = TokenLogprobs(5, -math.inf, 9, (6,), (-math.inf,))
    (found,) = chat_logprobs(TokenForms(BYTES), [entry])["content"]
    assert found["logprob"] == found["top_logprobs"][0]["logprob"] == LOWEST


def test_of_two_tokens_that_look_alike_the_likelier_one_counts() -> None:
    first, second = (byte_level().token_to_id(token) for token in ("æ", "ç"))
    entry = TokenLogprobs(first, -3.0, 2, (second,), (-1.0,))
    found = CompletionLogprobs(TokenForms(BYTES)).output([entry])
    assert found["top_logprobs"] == [{"\ufffd": -1.0}]


def test_ties_name_the_chosen_token_first() -> None:
    """Harnesses take the first of the largest as the greedy one."""
    entry = TokenLogprobs(70, -1.0, 1, (71, 70), (-1.0, -1.0))
    (top,) = CompletionLogprobs(TokenForms(BYTES, as_ids=True)).output([entry])["top_logprobs"]
    assert list(top) == ["token_id:70", "token_id:71"]


def test_candidates_of_a_prompt_have_ranks() -> None:
    entry = TokenLogprobs(70, -9.0, 40, (71, 72), (-1.0, -2.0))
    first, second = prompt_logprobs(TokenForms(BYTES), [entry])
    assert first is None
    assert second is not None
    assert {i: found["rank"] for i, found in second.items()} == {"70": 40, "71": 1, "72": 2}


def test_an_empty_prompt_has_no_numbers() -> None:
    assert CompletionLogprobs(TokenForms(BYTES)).prompt([], [])["tokens"] == []
