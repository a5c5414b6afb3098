"""Whatever is sent, the server answers with less than 500 and goes on."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.server.running import Server, serving
from yaie_api.http.openai import NOT_IMPLEMENTED, ChatCompletionRequest, CompletionRequest

MAX_ANSWER_S = 10.0
"""On a machine that does nothing else it is two."""
INSIDES = re.compile(r"0x[0-9a-f]{6,}|/usr|/home|/work|Traceback|pydantic|jinja|llguidance|msgspec")
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
json_texts = st.sampled_from(["{}", "", "{", '{"a": [1, "<|im_end|>"]}', "[" * 9999, "null", "NaN"])
calls = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": texts, "arguments": json_texts | texts})},
        optional={"id": texts, "type": st.just("function")},
    ),
    max_size=2,
)
parts = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "text", "input_text", "refusal", "image_url", "x"])},
        optional={"text": texts, "refusal": texts, "image_url": values},
    ),
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "developer", "tool"])},
        optional={
            "content": texts | texts | parts | st.none(),
            "tool_calls": calls,
            "tool_call_id": texts,
            "reasoning_content": texts,
            "name": texts,
        },
    ),
    min_size=1,
    max_size=3,
)
kinds = st.sampled_from(["object", "string", "integer", "array", "null", "x", ["string", "null"]])
schemas = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({"type": kinds})
    | st.fixed_dictionaries(
        {"pattern": st.sampled_from(["a+", "(", "(a|a)*b", "\\\\p{L}", "(?=x)"])}
    )
    | st.fixed_dictionaries({"enum": st.lists(values, max_size=3)})
    | st.fixed_dictionaries({"$ref": st.sampled_from(["#", "#/a", "http://x/y", "x"])}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "properties": st.dictionaries(texts, inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "required": st.lists(texts, max_size=2),
            "minItems": st.integers(-1, 10**6),
            "maxLength": st.integers(-1, 10**9),
        },
    ),
    max_leaves=4,
)
names = st.sampled_from(["f", "g", "get.it", "a b", "", "x" * 65])
tools = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": names},
                optional={"parameters": schemas, "description": texts, "strict": st.booleans()},
            ),
        }
    ),
    max_size=2,
)
choices = st.sampled_from(["none", "auto", "required"]) | st.fixed_dictionaries(
    {"type": st.just("function"), "function": st.fixed_dictionaries({"name": names})}
)
formats = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "json_object", "json_schema", "structural_tag", "sound"])},
    optional={
        "json_schema": st.fixed_dictionaries({}, optional={"name": texts, "schema": schemas})
    },
)
structured = st.fixed_dictionaries(
    {},
    optional={
        "json": schemas,
        "regex": st.sampled_from(["a+", "(", "[[:alpha:]]*", "a{1,99999}", ""]),
        "choice": st.lists(texts, max_size=3),
        "grammar": st.sampled_from(['start: "a"', "start: b", 'root ::= "a"', ""]),
    },
)
numbers = st.integers(-2, 40) | st.floats() | st.sampled_from([2**63, 1e308])
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(0, 4),
    "temperature": st.sampled_from([0, 0.5, 2, 2.1]),
    "tools": tools,
    "tool_choice": choices,
    "response_format": formats,
    "structured_outputs": structured,
    "guided_json": schemas,
    "regex": texts,
    "logit_bias": st.dictionaries(st.sampled_from(["1", "299", "x", "-1", "9999"]), numbers),
    "logprobs": st.booleans() | st.integers(-2, 25),
    "top_logprobs": st.integers(-2, 25),
    "prompt_logprobs": st.integers(-2, 25),
    "echo": st.booleans(),
    "stream": st.booleans(),
    "max_tokens": st.integers(-1, 4),
    "stop": texts | st.lists(texts, max_size=3),
    "bad_words": st.lists(texts, max_size=3),
    "allowed_token_ids": st.lists(st.integers(-1, 400), max_size=3),
    "truncate_prompt_tokens": st.integers(-2, 300),
    "truncation_side": st.sampled_from(["left", "right", "top"]),
    "continue_final_message": st.booleans(),
    "add_generation_prompt": st.booleans(),
    "chat_template_kwargs": st.dictionaries(texts, values, max_size=2),
    "documents": st.lists(st.dictionaries(texts, values, max_size=2), max_size=2),
    "return_token_ids": st.booleans(),
    "return_tokens_as_token_ids": st.booleans(),
    "include_reasoning": st.booleans(),
    "priority": st.integers(-1, 1),
    "cache_salt": texts,
}
fields = st.sampled_from(
    sorted(
        NOT_IMPLEMENTED.keys()
        | (ChatCompletionRequest.model_fields.keys() | CompletionRequest.model_fields.keys())
        - {"messages", "prompt"}
    )
)
nearly_right = st.builds(
    lambda likely, extra, chosen, prompt: (
        {"messages": chosen, "prompt": prompt, "max_tokens": 2} | likely | extra
    ),
    st.fixed_dictionaries({}, optional=LIKELY),
    st.dictionaries(fields, values, max_size=1),
    messages | values,
    texts | st.lists(st.integers(-1, 400), max_size=4) | values,
)
right = st.builds(
    lambda likely, chosen: {"messages": chosen, "prompt": "hello", "max_tokens": 2} | likely,
    st.sets(st.sampled_from(sorted(LIKELY)), max_size=3).flatmap(
        lambda some: st.fixed_dictionaries({name: LIKELY[name] for name in some})
    ),
    messages,
)


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(PATHS), body=right | nearly_right | values)
def test_any_json_is_answered_below_500_and_soon(
    connection: http.client.HTTPConnection, path: str, body: Any
) -> None:
    started_s = time.monotonic()
    status, answer = ask(connection, path, json.dumps(body).encode())
    assert time.monotonic() - started_s < MAX_ANSWER_S
    assert status < 500, answer
    assert not INSIDES.search(answer.decode()), answer
    if status >= 400:
        assert set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}
    elif answer.startswith(b"data:"):
        assert answer.endswith(b"data: [DONE]\n\n")
        assert b'"error"' not in answer


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
