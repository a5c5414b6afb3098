import pytest

from yaie_api.errors import AuthenticationError, InvalidRequestError
from yaie_api.http.access.cors import CorsPolicy
from yaie_api.http.access.gate import Gate
from yaie_api.http.access.head import Head
from yaie_api.http.access.keys import ApiKeys, digest

APP = "https://app.example"
PREFLIGHT = {"origin": APP, "access-control-request-method": "POST"}


def head(path: str = "/v1/models", method: str = "GET", **headers: str) -> Head:
    named = {"host": "localhost"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return Head(method, path, [(k.encode(), v.encode()) for k, v in named.items()])


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/health", "/ping", "/docs", "/openapi.json"]
)
def test_health_pages_and_the_description_need_no_key(path: str) -> None:
    Gate(["secret"]).check(head(path))


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/metrics", "/version", "/nope", "//livez", "/livez/", "/LIVEZ", "/", ""],
)
def test_every_other_path_needs_one(path: str) -> None:
    gate = Gate(["secret"])
    with pytest.raises(AuthenticationError) as refused:
        gate.check(head(path))
    assert "secret" not in refused.value.message
    gate.check(head(path, authorization="Bearer secret"))


def test_a_gate_that_asks_and_has_no_keys_lets_nobody_in() -> None:
    gate = Gate()
    assert gate.check(head()) == ""
    gate.accept_only(ApiKeys())
    for shown in ({}, {"authorization": "Bearer "}, {"x_api_key": ""}):
        with pytest.raises(AuthenticationError):
            gate.check(head(**shown))
    gate.check(head("/livez"))


def test_a_gate_knows_the_tenant_by_its_key() -> None:
    gate = Gate(["old"])
    gate.accept_only(ApiKeys(tenants={"team-a": [digest(b"new")]}))
    assert gate.check(head(x_api_key="new")) == "team-a"
    assert gate.check(head("/livez", x_api_key="new")) == "team-a"
    assert gate.check(head("/livez")) == ""
    with pytest.raises(AuthenticationError):
        gate.check(head(x_api_key="old"))


def test_the_chat_page_is_for_browsers() -> None:
    Gate(["secret"]).check(head("/", accept="text/html"))
    with pytest.raises(AuthenticationError):
        Gate(["secret"]).check(head("/", "POST", accept="text/html"))
    with pytest.raises(AuthenticationError):
        Gate(["secret"], with_pages=False).check(head("/", accept="text/html"))


def test_a_key_makes_up_for_another_machine() -> None:
    gate = Gate(["secret"], local_only=True)
    gate.check(head(host="llm.example", authorization="Bearer secret"))
    with pytest.raises(InvalidRequestError):
        Gate(local_only=True).check(head(host="llm.example"))


def test_a_local_server_takes_pages_of_allowed_origins_but_no_other_host() -> None:
    gate = Gate(cors=CorsPolicy((APP,)), local_only=True)
    gate.check(head(origin=APP))
    for foreign in ({"origin": "https://evil.example"}, {"origin": APP, "host": "evil.example"}):
        with pytest.raises(InvalidRequestError):
            gate.check(head(**foreign))


def test_a_preflight_needs_no_key() -> None:
    asked = Head("OPTIONS", "/v1/models", [(k.encode(), v.encode()) for k, v in PREFLIGHT.items()])
    allowed = Gate(["secret"], CorsPolicy((APP,))).preflight(asked)
    assert allowed is not None
    assert "access-control-allow-methods" in allowed
    assert Gate(["secret"]).preflight(asked) is None
    with pytest.raises(InvalidRequestError, match="--allowed-origins"):
        Gate(["secret"], CorsPolicy(("https://other.example",))).preflight(asked)
