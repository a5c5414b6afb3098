"""A wrong path is answered with the right one."""

import time

import pytest

from yaie_api.http.paths import no_such_path

KNOWN = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/version")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/models/", "/v1/models"),
        ("/models", "/v1/models"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/embedding", "/v1/embeddings"),
        ("/api/chat", "/v1/chat/completions"),
        ("/api/tags", "/v1/models"),
        ("/v1/models/a/b", "/v1/models"),
        ("/v1/chat/completions/chatcmpl-1/messages", "/v1/chat/completions"),
        ("/v1/chat", "/v1/chat/completions"),
    ],
)
def test_the_path_that_was_meant_is_named(path: str, meant: str) -> None:
    error = no_such_path(path, KNOWN)
    assert error.message == f"No such path. Did you mean {meant}?"
    assert (error.status, error.code) == (404, "path_not_found")


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/wp-admin/setup.php", "/api/unknown"])
def test_for_what_is_like_none_the_api_is_named(path: str) -> None:
    assert no_such_path(path, KNOWN).message == "No such path. The API is under /v1."


def test_a_very_long_path_costs_no_time() -> None:
    began = time.perf_counter()
    no_such_path("/v1/" * 100_000, KNOWN)
    assert time.perf_counter() - began < 0.05
