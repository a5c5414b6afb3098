"""The surface over the built-in model, nothing scripted: what is asked for is what comes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest

from engine.server.running import Server
from engine.server.test_serve_real import end, start

USER: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start(tmp_path_factory.mktemp("surface"), "--served-model-name", "demo")
    try:
        running.wait_for(lambda: running.call("/readyz").status == 200, 100)
        yield running
    finally:
        end(running)


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_outputs_of_one_request_differ_and_are_the_same_again(server: Server) -> None:
    fields = {"n": 4, "seed": 11, "temperature": 1.5, "max_tokens": 12}
    first, second = (server.chat("Tell me a word.", **fields).json for _ in range(2))
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert texts == [choice["message"]["content"] for choice in second["choices"]]
    assert len(set(texts)) > 1
    assert first["usage"]["completion_tokens"] <= 48


def test_an_output_of_several_has_the_seed_that_its_place_says(server: Server) -> None:
    fields = {"temperature": 1.5, "max_tokens": 12}
    several = server.chat("Tell me a word.", n=3, seed=11, **fields).json["choices"]
    alone = [server.chat("Tell me a word.", seed=11 + i, **fields).json for i in range(3)]
    assert [c["message"]["content"] for c in several] == [
        answer["choices"][0]["message"]["content"] for answer in alone
    ]


def test_logprobs_say_that_greedy_takes_the_likeliest(server: Server) -> None:
    fields = {"logprobs": True, "top_logprobs": 5, "max_tokens": 12, "temperature": 0}
    choice = server.chat("Hello", **fields).json["choices"][0]
    entries = choice["logprobs"]["content"]
    for entry in entries:
        top = [one["logprob"] for one in entry["top_logprobs"]]
        assert entry["logprob"] == top[0] == max(top) <= 0
        assert top == sorted(top, reverse=True)
        assert entry["top_logprobs"][0]["token"] == entry["token"]
    spelled = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
    assert spelled.removesuffix("<|im_end|>") == choice["message"]["content"]


def test_a_prompt_is_scored_as_it_would_be_generated(server: Server) -> None:
    """Greedy text, sent back as ids with echo: every token of it is the likeliest again."""
    ids = server.call("/tokenize", {"prompt": "Once upon a time"}).json["tokens"]
    body = {"prompt": ids, "max_tokens": 10, "temperature": 0, "logprobs": 1}
    made = server.call("/v1/completions", body | {"return_token_ids": True}).json["choices"][0]
    whole = [*ids, *made["token_ids"]]
    echo = {"prompt": [whole], "echo": True, "max_tokens": 0, "logprobs": 1}
    scored = server.call("/v1/completions", echo).json["choices"][0]["logprobs"]
    assert scored["token_logprobs"][0] is None
    assert len(scored["tokens"]) == len(whole)
    theirs = made["logprobs"]["token_logprobs"]
    ours = scored["token_logprobs"][len(ids) :]
    assert ours == pytest.approx(theirs, abs=1e-3)
    for token, top in list(zip(scored["tokens"], scored["top_logprobs"], strict=True))[len(ids) :]:
        assert max(top, key=lambda text: top[text]) == token


def test_harnesses_ask_for_one_token_after_the_echo(server: Server) -> None:
    body = {
        "prompt": [[10, 11, 12], [20, 21, 22, 23]], "max_tokens": 1, "temperature": 0,
        "logprobs": 1, "echo": True, "seed": 1,
    }  # fmt: skip
    choices = server.call("/v1/completions", body).json["choices"]
    assert [len(choice["logprobs"]["token_logprobs"]) for choice in choices] == [4, 5]
    assert all(isinstance(p, float) for c in choices for p in c["logprobs"]["token_logprobs"][1:])


def test_a_bias_a_ban_and_a_list_of_allowed_ids_are_obeyed(server: Server) -> None:
    def ids(**fields: Any) -> list[int]:
        body = {"prompt": "Once", "max_tokens": 6, "temperature": 0, "return_token_ids": True}
        answer = server.call("/v1/completions", body | fields).json
        return list(answer["choices"][0]["token_ids"])

    free = ids()
    assert ids(logit_bias={"50": 100}) == [50] * 6
    assert set(ids(allowed_token_ids=[60, 61])) <= {60, 61}
    first = server.call("/detokenize", {"tokens": free[:1]}).json["prompt"]
    assert ids(bad_words=[first])[0] != free[0]


def test_a_required_call_is_made_whole_and_streamed(client: openai.OpenAI) -> None:
    def ask(**fields: Any) -> Any:
        return client.chat.completions.create(
            model="demo", messages=USER, tools=[WEATHER], max_tokens=200, **fields
        )

    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        whole = ask(tool_choice=choice, temperature=1.0).choices[0]
        assert whole.finish_reason == "tool_calls"
        for call in whole.message.tool_calls:
            assert call.function.name == "get_weather"
            schema = WEATHER["function"]["parameters"]
            jsonschema_rs.validate(schema, json.loads(call.function.arguments))
    chunks = list(ask(tool_choice="required", temperature=0, stream=True))
    pieces = [p for c in chunks for p in c.choices[0].delta.tool_calls or ()]
    arguments = "".join(piece.function.arguments for piece in pieces if piece.index == 0)
    assert set(json.loads(arguments)) == {"city"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_the_built_in_model_calls_a_function_that_names_its_schema_s_draft(
    client: openai.OpenAI,
) -> None:
    """Zod, and so most JavaScript clients, put `$schema` first."""
    function = WEATHER["function"]
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    declared = {**function, "parameters": {**draft, **function["parameters"]}}
    tools: Any = [
        {"type": "function", "function": declared},
        {"type": "function", "function": {"name": "now"}},
    ]
    answer = client.chat.completions.create(
        model="demo", messages=USER, tools=tools, max_tokens=60, temperature=0
    )
    (call,) = answer.choices[0].message.tool_calls or ()
    assert (call.function.name, json.loads(call.function.arguments)) == (  # type: ignore[union-attr]
        "get_weather",
        {"city": "Paris"},
    )


def test_a_required_call_that_is_cut_off_leaves_no_tag(server: Server) -> None:
    """At first there is nothing, then a call with a part of its arguments."""
    named = []
    for limit in (1, 2, 5, 9, 23):
        fields = {"tools": [WEATHER], "tool_choice": "required", "temperature": 0}
        choice = server.chat("Weather in Rome?", max_tokens=limit, **fields).json["choices"][0]
        assert not choice["message"]["content"]
        named.append(bool(choice["message"]["tool_calls"]))
    assert named == sorted(named)
    assert named[0] < named[-1]


def test_an_answer_has_the_form_of_its_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99},
                       "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
        "required": ["age", "tags"],
        "additionalProperties": False,
    }  # fmt: skip
    answer = client.chat.completions.create(
        model="demo",
        messages=USER,
        temperature=1.5,
        n=4,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema_rs.validate(schema, json.loads(choice.message.content or ""))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "(unclosed"}}, "structured_outputs"),
        ({"guided_grammar": "start: nothing_here"}, "guided_grammar"),
        ({"response_format": {"type": "json_schema",
          "json_schema": {"schema": {"type": "nonsense"}}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
         "response_format"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "(?!a)b"}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "root ::= root"}}, "structured_outputs"),
        ({"guided_choice": ["a"], "guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ],
    ids=["regex", "grammar", "schema", "no schema", "no choice", "look-ahead", "no text",
         "constraint that nobody keeps"],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
def test_a_form_that_cannot_be_kept_is_a_bad_request(
    server: Server, fields: dict[str, Any], param: str, stream: bool
) -> None:
    answer = server.chat("hello", max_tokens=5, stream=stream, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"structured_outputs": {"regex": "^$"}}, ""),
        ({"guided_choice": ["left", "right"]}, "left|right"),
        (
            {"structured_outputs": {"grammar": '?start: "a" NUMBER\nNUMBER: /[0-9]{2}/\n'}},
            "a[0-9]{2}",
        ),
        ({"guided_grammar": 'root ::= "b" [0-9] [0-9]'}, "b[0-9]{2}"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "n",
                        "strict": True,
                        "schema": {"$ref": "#/$defs/x", "$defs": {"x": {"enum": [1, "a", None]}}},
                    },
                }
            },
            '1|"a"|null',
        ),
    ],
    ids=["empty", "choice", "lark", "ebnf", "reference"],
)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_an_answer_is_what_its_form_allows(
    server: Server, fields: dict[str, Any], form: str, temperature: float
) -> None:
    choice = server.chat("hello", max_tokens=20, temperature=temperature, **fields).json["choices"][
        0
    ]
    assert re.fullmatch(form, choice["message"]["content"])
    assert choice["finish_reason"] == "stop"


def test_a_stop_string_ends_one_of_several_outputs(server: Server) -> None:
    body = {"prompt": "Once upon a time", "n": 4, "temperature": 1.2, "seed": 3, "max_tokens": 30}
    plain = server.call("/v1/completions", body).json["choices"]
    cut = server.call("/v1/completions", body | {"stop": ["e"]}).json["choices"]
    for whole, part in zip(plain, cut, strict=True):
        assert part["text"] == whole["text"].split("e")[0]
        assert part["stop_reason"] == ("e" if "e" in whole["text"] else None)
    server.wait_for(lambda: b"yaie_engine_running_requests 0.0" in server.call("/metrics").body)


def test_a_request_ends_when_its_time_is_over(server: Server) -> None:
    body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True}
    answer = server.call("/v1/completions", body, headers={"x-yaie-timeout-seconds": "0.3"})
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [True, False])
def test_constraints_that_leave_no_token_are_the_request_s_fault(
    server: Server, stream: bool
) -> None:
    """A form of digits, of which only one letter is allowed: it shows when the mask is there."""
    fields = {"structured_outputs": {"regex": "[0-9]+"}, "allowed_token_ids": [50]}
    answer = server.chat("hello", max_tokens=5, stream=stream, **fields)
    assert answer.status == (200 if stream else 400)
    error = answer.events[-1]["error"] if stream else answer.error
    assert (error["type"], error["code"]) == ("invalid_request_error", "no_token_allowed")
    assert "constraints allow no token" in error["message"]


@pytest.mark.parametrize(
    ("syntax", "definition", "form"),
    [
        ("regex", r"[a-c]{2}\n\"[0-9]\"", r"[a-c]{2}\n\"[0-9]\""),
        ("lark", 'start: "say " WORD LF\nWORD: /[a-z]{3}/\n%import common.LF', r"say [a-z]{3}\n"),
    ],
)
def test_a_custom_tool_s_input_is_what_its_grammar_allows(
    client: openai.OpenAI, syntax: str, definition: str, form: str
) -> None:
    grammar = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool: Any = {"type": "custom", "name": "say", "format": grammar}
    choice: Any = {"type": "custom", "name": "say"}
    answer = client.responses.create(
        model="demo", input="Say it.", tools=[tool], tool_choice=choice, max_output_tokens=200
    )
    (item,) = answer.output
    assert item.type == "custom_tool_call"
    assert re.fullmatch(form, item.input), item.input
