import pytest

from yaie.server.headers import tenant_and_timeout
from yaie.server.options import ServiceOptions
from yaie_api.errors import InvalidRequestError

KEY = {"authorization": "Bearer sk-1"}


def tenant(headers: dict[str, str], *, header: str | None = None, by_key: bool = False) -> str:
    options = ServiceOptions(tenant_header=header, tenants_by_key=by_key)
    return tenant_and_timeout(headers, options)[0]


def timeout_s(headers: dict[str, str]) -> float | None:
    return tenant_and_timeout(headers, ServiceOptions())[1]


def test_nobody_is_told_apart_by_default() -> None:
    assert tenant(KEY | {"x-tenant": "ann"}) == ""


def test_a_router_names_the_tenant_unless_another_way_was_chosen() -> None:
    routed = {"x-yaie-tenant": "team-a"}
    assert tenant(routed) == "team-a"
    assert tenant(routed, header="x-tenant") == ""
    assert tenant(routed | KEY, by_key=True) != "team-a"


def test_each_key_is_a_tenant_and_is_not_told_itself() -> None:
    first, second = tenant(KEY, by_key=True), tenant({"authorization": "x"}, by_key=True)
    assert first != second
    assert first == tenant(KEY, by_key=True)
    assert "sk-1" not in first


def test_a_key_is_one_tenant_however_it_is_shown() -> None:
    ways = ["Bearer sk-1", "bearer sk-1", "BEARER  sk-1 "]
    tenants = {tenant({"authorization": way}, by_key=True) for way in ways}
    tenants.add(tenant({"x-api-key": "sk-1"}, by_key=True))
    assert tenants == {tenant(KEY, by_key=True)}
    assert tenant({"x-api-key": "sk-2"}, by_key=True) not in tenants


def test_a_trusted_header_wins_over_the_key() -> None:
    assert tenant(KEY | {"x-tenant": "ann"}, header="x-tenant", by_key=True) == "ann"
    assert tenant(KEY, header="x-tenant", by_key=True) == ""
    with pytest.raises(InvalidRequestError):
        tenant({"x-tenant": "a" * 129}, header="x-tenant")


def test_a_time_limit_comes_from_a_header() -> None:
    assert timeout_s({}) is None
    assert timeout_s({"x-yaie-timeout-seconds": "1.5"}) == 1.5


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_time_limit_that_is_none_is_refused(seconds: str) -> None:
    with pytest.raises(InvalidRequestError):
        timeout_s({"x-yaie-timeout-seconds": seconds})
