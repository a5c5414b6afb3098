"""Where bodies end, in whatever pieces they come."""

import re

import pytest

from yaie_router.upstream.http1.framing import Body, Chunked, FramingError, Length, UntilClosed

WHOLE = b"5\r\nhello\r\n1;name=value\r\n,\r\n006 \r\n world\r\n0\r\nx: y\r\n\r\n"
HELLO = b"hello, world"


def fed(body: Body, data: bytes, step: int) -> bytes:
    return b"".join(body.feed(data[at : at + step]) for at in range(0, len(data), step))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_are_joined_however_they_are_cut(step: int) -> None:
    body = Chunked()
    assert fed(body, WHOLE, step) == HELLO
    assert body.is_done
    assert not body.has_more
    body.end()


@pytest.mark.parametrize("odd", [b"4\r\n\r\na\n\r\n", b"A\r\n0123456789\r\n", b"02\r\nok\r\n"])
def test_a_chunk_that_is_not_plain_may_be_among_others(odd: bytes) -> None:
    body, alone = Chunked(), Chunked()
    plain = b"3\r\nabc\r\n"
    found = body.feed(plain * 2 + odd + plain + b"0\r\n\r\n")
    assert found == b"abcabc" + alone.feed(odd) + b"abc"
    assert (body.is_done, body.has_more) == (True, False)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "broken",
    [
        b"zz\r\n", b"-1\r\n", b"+1\r\n", b"0x1\r\n", b"1_0\r\n", b" 1\r\n", b"\r\n", b"\n",
        b";\r\n", b"1\n", b"1\r", b"1\r\r\n", b"f" * 13 + b"\r\n", b"1;" + b"x" * 5000, b"1 1\r\n",
        b"3\r\nabcX", b"3\r\nabc\n", b"3\r\nabc\r\r", b"0\r\n" + b"t" * 5000,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_chunk_is_refused_and_what_came_before_is_kept(broken: bytes, step: int) -> None:
    body, data = Chunked(), b"2\r\nab\r\n" + broken + b"x\r\nx\r\n0\r\n\r\n"
    parts: list[bytes] = []
    with pytest.raises(FramingError) as caught:
        parts.extend(body.feed(data[at : at + step]) for at in range(0, len(data), step))
    assert (b"".join(parts) + caught.value.payload)[:2] == b"ab"


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_chunks_that_end_with_the_connection_are_not_whole(cut: int) -> None:
    body = Chunked()
    body.feed(WHOLE[:cut])
    with pytest.raises(FramingError):
        body.end()


def test_what_comes_behind_a_body_is_noticed() -> None:
    for body, data in ((Chunked(), WHOLE), (Length(12), HELLO)):
        assert body.feed(data + b"HTTP/1.1 200 OK") == HELLO
        assert (body.is_done, body.has_more) == (True, True)


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (b"5\r\nhello\r\n", 3),
        (b"a\r\n0123456789\r\n", 3),
        (b"00A\r\n0123456789\r\n", 0),
        (b"5\r\nhello\r", 0),
        (b"5\r\nhello!\r\n", 0),
        (b"5\r\nhello\r\n0\r\n\r\n", 0),
        (b"5;x\r\nhello\r\n", 0),
        (b"0\r\n\r\n", 0),
        (b"+5\r\nhello\r\n", 0),
        (b"", 0),
    ],
)
def test_one_whole_chunk_is_seen_without_reading_it(data: bytes, at: int) -> None:
    assert Chunked().only_chunk(data) == at


def test_in_the_middle_of_a_chunk_nothing_is_taken_for_one() -> None:
    for begun in (b"9\r\nab", b"2\r\nab", b"2\r\nab\r", b"1", b"0\r\n"):
        body = Chunked()
        body.feed(begun)
        assert body.only_chunk(b"1\r\nx\r\n") == 0


def test_a_length_is_kept() -> None:
    body = Length(12)
    assert fed(body, HELLO[:11], 4) == HELLO[:11]
    with pytest.raises(FramingError, match=re.escape("1 bytes are missing")):
        body.end()
    assert body.feed(HELLO[11:]) == b"d"
    assert body.is_done
    assert Length(0).is_done


def test_without_a_length_the_connection_ends_the_body() -> None:
    body = UntilClosed()
    assert body.feed(HELLO) == HELLO
    assert not body.is_done
    body.end()
    assert body.is_done
