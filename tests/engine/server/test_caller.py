import pytest

from yaie.server.caller import Caller, caller_of
from yaie_api.errors import InvalidRequestError

KEY = {"authorization": "Bearer sk-1"}


def caller(headers: dict[str, str], *, header: str | None = None, by_key: bool = False) -> Caller:
    return caller_of(headers, tenant_header=header, tenants_by_key=by_key)


def test_nobody_is_told_apart_by_default() -> None:
    assert caller(KEY | {"x-tenant": "ann"}).tenant == ""


def test_each_key_is_a_tenant_and_is_not_told_itself() -> None:
    first, second = caller(KEY, by_key=True), caller({"authorization": "x"}, by_key=True)
    assert first.tenant != second.tenant
    assert first.tenant == caller(KEY, by_key=True).tenant
    assert "sk-1" not in first.tenant


def test_a_key_is_one_tenant_however_it_is_shown() -> None:
    ways = ["Bearer sk-1", "bearer sk-1", "BEARER  sk-1 "]
    tenants = {caller({"authorization": way}, by_key=True).tenant for way in ways}
    tenants.add(caller({"x-api-key": "sk-1"}, by_key=True).tenant)
    assert tenants == {caller(KEY, by_key=True).tenant}
    assert caller({"x-api-key": "sk-2"}, by_key=True).tenant not in tenants


def test_a_trusted_header_wins_over_the_key() -> None:
    assert caller(KEY | {"x-tenant": "ann"}, header="x-tenant", by_key=True).tenant == "ann"
    assert caller(KEY, header="x-tenant", by_key=True).tenant == ""
    with pytest.raises(InvalidRequestError):
        caller({"x-tenant": "a" * 129}, header="x-tenant")


def test_tenants_never_share_a_salt() -> None:
    ann, bob, nobody = (Caller(0.0, tenant) for tenant in ("ann", "bob", ""))
    salts = [who.salt(wanted) for who in (ann, bob, nobody) for wanted in (None, "s")]
    assert salts == ["ann/", "ann/s", "bob/", "bob/s", "", "s"]


def test_a_time_limit_comes_from_a_header() -> None:
    assert caller({}).timeout_s is None
    assert caller({"x-yaie-timeout-seconds": "1.5"}).timeout_s == 1.5


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_time_limit_that_is_none_is_refused(seconds: str) -> None:
    with pytest.raises(InvalidRequestError):
        caller({"x-yaie-timeout-seconds": seconds})
