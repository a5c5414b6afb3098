import pytest

from yaie_api.errors import InvalidRequestError
from yaie_api.http.access.origin import check_local, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback_addresses_are_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8000", ""),
        ("127.0.0.1:8000", ""),
        ("127.1.0.7:8000", ""),
        ("[::1]:8000", ""),
        ("10.0.0.5:8000", ""),
        ("app.localhost", "http://localhost:3000"),
        ("localhost", "http://127.0.0.1:3000"),
    ],
)
def test_requests_from_this_machine_pass(host: str, origin: str) -> None:
    check_local(host, origin)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example", ""),
        ("evil.example:8000", ""),
        ("localhost.evil.example", ""),
        ("127.0.0.1.evil.example", ""),
        ("", ""),
        ("[::1", ""),
        ("user@localhost@evil.example", ""),
        ("localhost", "https://evil.example"),
        ("localhost", "https://10.0.0.5"),
        ("localhost", "null"),
    ],
)
def test_requests_that_name_another_machine_are_refused(host: str, origin: str) -> None:
    with pytest.raises(InvalidRequestError, match="another machine") as refused:
        check_local(host, origin)
    assert refused.value.code == "foreign_host"
