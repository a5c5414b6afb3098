import pytest

from yaie_api.http.access.cors import CorsPolicy, check_origin, parse_list, policy_of
from yaie_api.http.access.head import Head

APP = "https://app.example"


def preflight(*headers: tuple[bytes, bytes], origin: str = APP) -> Head:
    asked = ((b"origin", origin.encode()), (b"access-control-request-method", b"POST"))
    return Head("OPTIONS", "/v1/models", (*asked, *headers))


def test_without_origins_nothing_is_said() -> None:
    assert CorsPolicy().answer_headers(APP) == {}
    assert not CorsPolicy().is_preflight(preflight())


def test_an_allowed_page_may_read_the_answer_and_the_request_id() -> None:
    told = CorsPolicy((APP,)).answer_headers(APP)
    assert told["access-control-allow-origin"] == APP
    assert "x-request-id" in told["access-control-expose-headers"]
    assert told["vary"] == "origin"
    assert "access-control-allow-credentials" not in told


def test_others_are_told_nothing_but_that_it_depends() -> None:
    assert CorsPolicy((APP,)).answer_headers("https://evil.example") == {"vary": "origin"}
    assert CorsPolicy((APP,)).answer_headers("") == {"vary": "origin"}


def test_a_star_lets_all_in_and_with_credentials_it_names_them() -> None:
    told = CorsPolicy(("*",)).answer_headers(APP)
    assert (told["access-control-allow-origin"], "vary" in told) == ("*", False)
    told = CorsPolicy(("*",), credentials=True).answer_headers(APP)
    assert (told["access-control-allow-origin"], told["vary"]) == (APP, "origin")
    assert told["access-control-allow-credentials"] == "true"


def test_a_preflight_is_told_methods_and_headers() -> None:
    asked = preflight((b"access-control-request-headers", b"authorization, content-type"))
    assert CorsPolicy((APP,)).is_preflight(asked)
    told = CorsPolicy((APP,)).preflight_headers(asked)
    assert "POST" in told["access-control-allow-methods"]
    assert told["access-control-allow-headers"] == "authorization, content-type"
    told = CorsPolicy((APP,), ("GET",), ("x-one",)).preflight_headers(asked)
    assert told["access-control-allow-methods"] == "GET"
    assert told["access-control-allow-headers"] == "x-one"


def test_a_public_page_may_ask_for_a_private_address_where_it_was_allowed() -> None:
    asked = preflight((b"access-control-request-private-network", b"true"))
    told = CorsPolicy((APP,)).preflight_headers(asked)
    assert told["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["*"]', ("*",)),
        ('["https://a.example", "https://b.example"]', ("https://a.example", "https://b.example")),
        ("https://a.example, https://b.example,", ("https://a.example", "https://b.example")),
        ("*", ("*",)),
        ("", ()),
    ],
)
def test_lists_are_json_or_words_with_commas(text: str, words: tuple[str, ...]) -> None:
    assert parse_list(text) == words


@pytest.mark.parametrize("text", ['["a"', "[1]", '[{"a": 1}]'])
def test_what_begins_like_json_has_to_be_a_list_of_strings(text: str) -> None:
    with pytest.raises(ValueError, match="no list of strings"):
        parse_list(text)


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("app.example", "write its scheme"),
        ("localhost:3000", "write its scheme"),
        ("https://[", "write its scheme"),
        ("https://app.example/", "write https://app.example"),
        ("https://App.Example", "write https://app.example"),
        ("https://app.example/chat", "write https://app.example"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_with_what_to_write(
    origin: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        check_origin(origin)


@pytest.mark.parametrize("origin", ["*", "null", APP, "http://localhost:3000", "app://obsidian.md"])
def test_origins_that_browsers_send_pass(origin: str) -> None:
    check_origin(origin)


def test_a_policy_survives_the_environment() -> None:
    for policy in (CorsPolicy(), CorsPolicy((APP, "*"), ("GET",), ("a", "b"), credentials=True)):
        assert policy_of(policy.environment()) == policy


def test_variables_take_what_people_write() -> None:
    assert policy_of({"YAIE_ALLOWED_ORIGINS": f"{APP},null"}).origins == (APP, "null")
    with pytest.raises(ValueError, match="write true or false"):
        policy_of({"YAIE_ALLOWED_ORIGINS": "*", "YAIE_ALLOW_CREDENTIALS": "maybe"})
