import pytest

from yaie_api.http.access.head import Head
from yaie_api.http.access.keys import ApiKeys, parse_keys, shown_key


def head(*headers: tuple[bytes, bytes]) -> Head:
    return Head("GET", "/v1/models", headers)


def test_keys_are_kept_as_hashes_and_all_are_accepted() -> None:
    keys = ApiKeys(["one", "zwei-ü"])
    assert keys.accept(b"one")
    assert keys.accept("zwei-ü".encode())
    assert not keys.accept(b"on")
    assert not keys.accept(b"")
    assert "one" not in repr(vars(keys))
    assert not ApiKeys()
    assert not ApiKeys().accept(b"")


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([], b""),
        ([(b"authorization", b"Bearer secret")], b"secret"),
        ([(b"authorization", b"bearer  secret ")], b"secret"),
        ([(b"authorization", b"Basic secret")], b""),
        ([(b"authorization", b"secret")], b""),
        ([(b"x-api-key", b"secret")], b"secret"),
        ([(b"authorization", b"Basic x"), (b"x-api-key", b"secret")], b""),
        ([(b"x-api-key", b"secret"), (b"x-api-key", b"secret")], b""),
        ([(b"authorization", "Bearer zwei-ü".encode())], "zwei-ü".encode()),
    ],
)
def test_the_key_of_a_request(headers: list[tuple[bytes, bytes]], key: bytes) -> None:
    assert shown_key(head(*headers)) == key


def test_one_key_a_line() -> None:
    assert parse_keys("a\n\n  b \r\nc d") == ("a", "b", "c d")
    assert parse_keys("") == ()
