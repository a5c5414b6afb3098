import argparse
from pathlib import Path
from typing import Any

import pytest

from yaie.cli.access_flags import access_of, add_cors_flags, add_key_flags, api_keys
from yaie_api.errors import InvalidRequestError
from yaie_api.http.access.cors import policy_of


def access(*arguments: str, **environment: str) -> Any:
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("x")
    add_key_flags(group, several=True)
    add_cors_flags(group)
    return access_of(parser.parse_args(arguments), environment)


@pytest.mark.parametrize(
    ("flags", "environment", "keys"),
    [
        ([], {}, ()),
        ([], {"YAIE_API_KEY": ""}, ()),
        ([], {"YAIE_API_KEY": "secret"}, ("secret",)),
        ([], {"YAIE_API_KEY": "one\ntwo\n"}, ("one", "two")),
        (["a", "b"], {"YAIE_API_KEY": "secret"}, ("a", "b")),
    ],
)
def test_keys_come_from_flags_then_from_the_environment(
    flags: list[str], environment: dict[str, str], keys: tuple[str, ...]
) -> None:
    assert api_keys(flags, None, environment) == keys


def test_a_file_adds_keys_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("two\n\nthree\n")
    told = access("--api-key", "one", "--api-key-file", str(file), YAIE_API_KEY="no")
    assert told.keys == ("one", "two", "three")
    assert "two" not in repr(told)


@pytest.mark.parametrize("flag", ["", "  "])
def test_an_empty_key_does_not_open_the_server(flag: str) -> None:
    with pytest.raises(InvalidRequestError, match="--api-key is empty"):
        access("--api-key", flag)


def test_a_file_without_a_key_does_not_open_the_server(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, told in (
        ("empty", "has no key"),
        ("missing", "No such file"),
        ("binary", "not text"),
    ):
        with pytest.raises(InvalidRequestError, match=told):
            access("--api-key-file", str(tmp_path / name))


def test_the_variable_of_vllm_is_not_read_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert access(VLLM_API_KEY="secret").keys == ()
    assert "a variable is not read" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        ["--allowed-origins", '["https://a.example","https://b.example"]'],
        ["--allowed-origins", "https://a.example,https://b.example"],
        ["--allowed-origins", "https://a.example", "--allowed-origins", "https://b.example"],
    ],
)
def test_origins_are_written_as_people_do(arguments: list[str]) -> None:
    assert access(*arguments).cors.origins == ("https://a.example", "https://b.example")


def test_the_flags_of_vllm_mean_what_they_mean_there() -> None:
    told = access(
        *("--allowed-origins", '["*"]', "--allowed-methods", '["get"]'),
        *("--allowed-headers", '["x-a"]', "--allow-credentials"),
    ).cors
    assert (told.origins, told.methods, told.headers) == (("*",), ("GET",), ("x-a",))
    assert told.credentials


def test_a_wrong_origin_is_told_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        access("--allowed-origins", "localhost:3000")
    assert "http://localhost:3000" in capsys.readouterr().err


def test_how_without_whom_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="name those, too"):
        access("--allow-credentials")


def test_a_router_gets_it_all_in_its_environment() -> None:
    told = access("--api-key", "one", "two", "--allowed-origins", "https://a.example")
    environment = told.environment()
    assert environment["YAIE_API_KEY"] == "one\ntwo"
    assert policy_of(environment) == told.cors
