"""What an engine tells the router of tokens, and how it is taken out of a stream again."""

import pytest

from yaie_api.http.usage_note import TokenUsage, UsageFilter

USAGE = TokenUsage(prompt_tokens=12, cached_tokens=4, completion_tokens=30)
BEFORE = b'data: {"x":": yaie-usage "}\n\n: ping\n\n'
DONE = b"data: [DONE]\n\n"


def filtered(*pieces: bytes) -> tuple[bytes, TokenUsage | None]:
    notes = UsageFilter()
    shown = b"".join(notes.feed(piece) for piece in pieces)
    return shown + notes.flush(), notes.usage


def test_the_comment_is_taken_out_and_read() -> None:
    assert filtered(BEFORE + USAGE.comment() + DONE) == (BEFORE + DONE, USAGE)


def test_it_is_a_comment_that_clients_would_ignore() -> None:
    assert USAGE.comment().startswith(b":")
    assert USAGE.comment().count(b"\n") == 2
    assert USAGE.comment().endswith(b"\n\n")


def test_it_is_found_wherever_the_stream_is_cut() -> None:
    whole = BEFORE + USAGE.comment() + DONE
    for first in range(len(whole)):
        for second in range(first, len(whole), 7):
            pieces = whole[:first], whole[first:second], whole[second:]
            assert filtered(*pieces) == (BEFORE + DONE, USAGE)
    assert filtered(*(whole[i : i + 1] for i in range(len(whole)))) == (BEFORE + DONE, USAGE)


@pytest.mark.parametrize(
    "pieces",
    [
        [b'data: {"x":"', b': yaie-usage {}"}\n\n'],
        [b"data: a", b": yaie-", b"usage {}\n\n"],
        [b"data: a\n\n: yaie", b"-router\n\n"],
        [b"data: a\n\n", b": yaie-usage "],
        [b"data: a\n\n: yaie-usage " + b"x" * 300, b"\n\n"],
        [b": ping\n\n", b":", b" ping\n\n", b""],
    ],
)
def test_all_else_passes_unchanged(pieces: list[bytes]) -> None:
    assert filtered(*pieces) == (b"".join(pieces), None)


def test_what_has_no_mark_is_never_held_back() -> None:
    assert UsageFilter().feed(BEFORE) is BEFORE
    assert UsageFilter().feed(b"data: half of an eve") == b"data: half of an eve"


def test_a_note_that_is_none_tells_nothing() -> None:
    assert filtered(b": yaie-usage {}\n\n" + DONE) == (DONE, None)
    assert TokenUsage.read("") is None
    assert TokenUsage.read("\udc80") is None
    assert TokenUsage.read(USAGE.header()) == USAGE
