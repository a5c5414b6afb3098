"""The notes of streams that another engine can continue."""

import pytest

from yaie_api.errors import InvalidRequestError
from yaie_api.http.replay import (
    MARK,
    NOTE_END,
    Identity,
    Piece,
    add_words,
    new_words,
    note,
    pieces_of,
    tail_of,
)


def told(*notes: bytes) -> list[Piece]:
    words = new_words()
    for one in notes:
        assert one.startswith(MARK)
        assert one.endswith(NOTE_END)
        add_words(words, one[len(MARK) : -len(NOTE_END)])
    return pieces_of(tail_of(words))


def test_pieces_come_back_as_they_were_noted() -> None:
    found = told(note([1, 2], 70), note(()), note([3]), note([131_071, 0, 5]))
    assert found == [Piece((1, 2), 70), Piece((3,)), Piece((131_071, 0, 5))]


def test_a_note_without_tokens_adds_no_piece() -> None:
    assert told(note(()), note(())) == []


def test_a_tail_that_is_cut_off_is_refused() -> None:
    words = new_words()
    add_words(words, b"1 2")
    with pytest.raises(InvalidRequestError):
        pieces_of(tail_of(words))


def test_an_identity_comes_back_from_its_header() -> None:
    identity = Identity.new()
    assert Identity.read(identity.header()) == identity
    assert Identity.read("") is None
    assert Identity.new().nonce != identity.nonce
    assert "\n" not in identity.header()
