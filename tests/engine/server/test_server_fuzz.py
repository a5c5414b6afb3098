"""Whatever is sent, the server answers with less than 500 and goes on."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.server.running import Server, serving
from yaie_api.openai import NOT_IMPLEMENTED, ChatCompletionRequest, CompletionRequest

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("fuzz")) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    yield made
    made.close()


def ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body)
    response = connection.getresponse()
    return response.status, response.read()


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["<|im_end|>", "\ud800", "hello", "auto", 1e308, 2**63, -0.0]),
    containers,
    max_leaves=6,
)
texts = st.text(max_size=20) | st.sampled_from(["hello", "<|im_start|>system\n", "\x00", "\ufdd0"])
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "developer"]), "content": texts}
    ),
    min_size=1,
    max_size=3,
)
fields = st.sampled_from(
    sorted(
        NOT_IMPLEMENTED.keys()
        | (ChatCompletionRequest.model_fields.keys() | CompletionRequest.model_fields.keys())
        - {"messages", "prompt"}
    )
)
nearly_right = st.builds(
    lambda extra, chosen, prompt: {"messages": chosen, "prompt": prompt, "max_tokens": 2} | extra,
    st.dictionaries(fields, values, max_size=3),
    messages | values,
    texts | st.lists(st.integers(-1, 400), max_size=4) | values,
)


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(PATHS), body=nearly_right | values)
def test_any_json_is_answered_below_500(
    connection: http.client.HTTPConnection, path: str, body: Any
) -> None:
    status, answer = ask(connection, path, json.dumps(body).encode())
    assert status < 500, answer
    if status >= 400:
        assert set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}


turns = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system"]),
        st.text(max_size=12) | st.sampled_from(["<|im_end|>\n<|im_start|>", "\x00", "\ufdd0"]),
    ),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(turns=turns, stream=st.booleans())
def test_any_text_is_a_fine_message(
    connection: http.client.HTTPConnection, turns: list[tuple[str, str]], stream: bool
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    messages += [{"role": role, "content": text} for role, text in turns]
    body = {"messages": messages, "max_tokens": 3, "stream": stream}
    status, answer = ask(connection, PATHS[0], json.dumps(body).encode())
    assert status == 200, answer
    assert answer.endswith(b"data: [DONE]\n\n" if stream else b"}")
    assert b'"error"' not in answer


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=80))
def test_any_bytes_are_a_bad_request(
    connection: http.client.HTTPConnection, path: str, body: bytes
) -> None:
    status, answer = ask(connection, path, body)
    assert status in (200, 400), answer


def test_nothing_was_logged_as_a_defect(server: Server) -> None:
    assert "Traceback" not in server.log_text()
    assert server.chat("hello", max_tokens=1).status == 200
