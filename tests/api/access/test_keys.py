import hashlib

import pytest

from yaie_api.http.access.head import Head
from yaie_api.http.access.keys import ApiKeys, parse_entry, parse_keys, shown_key


def head(*headers: tuple[bytes, bytes]) -> Head:
    return Head("GET", "/v1/models", headers)


def test_keys_are_kept_as_hashes_and_all_are_accepted() -> None:
    keys = ApiKeys(["one", "zwei-ü"])
    assert keys.tenant_of(b"one") == ""
    assert keys.tenant_of("zwei-ü".encode()) == ""
    assert keys.tenant_of(b"on") is None
    assert keys.tenant_of(b"") is None
    assert "one" not in repr(vars(keys))
    assert not ApiKeys()
    assert ApiKeys().tenant_of(b"") is None


def test_a_key_says_whose_it_is_and_its_hash_is_as_good() -> None:
    hashed = b"sha256:" + hashlib.sha256(b"two").hexdigest().encode()
    keys = ApiKeys(tenants={"a": parse_entry(b"one\r\n\n  uno "), "b": parse_entry(hashed + b"\n")})
    found = {key: keys.tenant_of(key) for key in (b"one", b"uno", b"two", hashed, b"")}
    assert found == {b"one": "a", b"uno": "a", b"two": "b", hashed: None, b"": None}
    assert len(keys) == 3
    both = ApiKeys(tenants={"a": parse_entry(b"same"), "b": parse_entry(b"same")})
    assert both.tenant_of(b"same") == "a"


@pytest.mark.parametrize(
    "wrong", [b"sha256:", b"sha256:zz", b"sha256:" + b"0" * 62, b"sha256:\xff"]
)
def test_a_hash_that_is_none_is_refused_and_not_shown(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="after sha256: come the 64") as refused:
        parse_entry(b"good\n" + wrong)
    assert "good" not in str(refused.value)


def test_an_entry_without_a_key_has_none() -> None:
    assert parse_entry(b"") == parse_entry(b" \n\n") == ()


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
