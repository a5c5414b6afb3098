"""The whole HTTP surface over the scripted engine, with real sockets."""

import asyncio
import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.server.running import Answer, Server, serving

USER = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


# -- chat -----------------------------------------------------------------------------------


def test_the_openai_client_gets_an_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="stub", messages=USER, max_tokens=7)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == "user\nhell"
    assert choice.finish_reason == "length"
    usage = answer.usage
    assert usage is not None
    assert (usage.completion_tokens, usage.total_tokens) == (7, usage.prompt_tokens + 7)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 5


def test_the_openai_client_streams_the_same_text(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="stub",
        messages=USER,
        max_tokens=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "user\nhell"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in chunks[1:-1])
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1


def test_a_stream_is_framed_as_clients_expect(server: Server) -> None:
    answer = server.chat("slow words", stream=True, max_tokens=8)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.events
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("usage" not in event for event in events)
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["length"]
    assert len(events) > 4  # tokens come one by one, not at the end


def test_usage_can_come_with_every_chunk(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = server.chat("slow words", stream=True, max_tokens=4, stream_options=options).events
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 4)


def test_a_stop_string_ends_the_answer_and_the_generation(server: Server) -> None:
    before = len(server.journal_entries("abort"))
    answer = server.chat("slow stop here and go on", stop=["stop"], max_tokens=200).json
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == "stop"
    assert "stop" not in choice["message"]["content"]
    assert choice["message"]["content"].endswith("slow ")
    assert answer["usage"]["completion_tokens"] < 30
    server.wait_for(lambda: len(server.journal_entries("abort")) > before)


def test_an_end_token_ends_the_answer_without_being_shown(server: Server) -> None:
    answer = server.chat("stop at once").json
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "endoftext" not in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["stop_reason"] is None
    assert answer["usage"]["completion_tokens"] == 4


def test_a_stop_token_that_was_asked_for_is_named(server: Server) -> None:
    end = server.call("/tokenize", {"prompt": "<|endoftext|>"}).json["tokens"][0]
    answer = server.chat("stop at once", stop_token_ids=[end]).json
    assert answer["choices"][0]["stop_reason"] == end


def test_a_body_of_two_lengths_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        assert raw.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_many_tokens_in_one_message_are_one_chunk(server: Server) -> None:
    events = server.chat("burst of tokens", stream=True, max_tokens=9).events
    assert len(events) == 2


def test_chat_takes_the_rest_of_the_context_by_default(server: Server) -> None:
    usage = server.chat("hello there").json["usage"]
    assert usage["total_tokens"] == 256


def test_the_newer_name_of_the_limit_wins(server: Server) -> None:
    usage = server.chat("hello", max_tokens=9, max_completion_tokens=3).json["usage"]
    assert usage["completion_tokens"] == 3


def test_parts_developer_role_and_nulls_are_understood(server: Server) -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "you"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    nulls = dict.fromkeys(["stop", "temperature", "tools", "logprobs", "top_logprobs", "user", "n"])
    body = {"messages": messages, "max_tokens": 3, "unknown_field": {"a": 1}} | nulls
    assert server.call("/v1/chat/completions", body).status == 200


def test_concurrent_streams_do_not_mix(server: Server) -> None:
    async def one(client: openai.AsyncOpenAI, word: str) -> str:
        stream = await client.completions.create(
            model="stub", prompt=f"hello {word} {word}", max_tokens=40, stream=True
        )
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x") as client:
            return await asyncio.gather(*(one(client, f"w{i}") for i in range(16)))

    for index, text in enumerate(asyncio.run(run())):
        numbers = set(re.findall(r"w(\d+)", text))
        assert all(f"{index}".startswith(n) or n == str(index) for n in numbers)
        assert str(index) in numbers


# -- completions ----------------------------------------------------------------------------


def test_completions_take_text_token_ids_and_lists_of_both(server: Server) -> None:
    ids = server.call("/tokenize", {"prompt": "hello a"}).json["tokens"]
    for prompt in ("hello a", ids, ["hello a"], [ids]):
        answer = server.call("/v1/completions", {"prompt": prompt, "max_tokens": len(ids)}).json
        assert [choice["text"] for choice in answer["choices"]] == ["hello a"]
        assert answer["object"] == "text_completion"


def test_several_prompts_give_choices_in_order(server: Server) -> None:
    prompts = ["hello a", "slow b", "burst c"]
    body = {"prompt": prompts, "max_tokens": 3}
    whole = server.call("/v1/completions", body).json
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] == 9
    streamed = ["", "", ""]
    for event in server.call("/v1/completions", body | {"stream": True}).events:
        choice = event["choices"][0]
        streamed[choice["index"]] += choice["text"]
    assert streamed == [choice["text"] for choice in whole["choices"]]


def test_completions_make_sixteen_tokens_by_default(server: Server) -> None:
    answer = server.call("/v1/completions", {"prompt": "hello"}).json
    assert answer["usage"]["completion_tokens"] == 16


def test_one_refused_prompt_ends_the_whole_request(server: Server) -> None:
    before = len(server.journal_entries("abort"))
    answer = server.call("/v1/completions", {"prompt": ["slow a", "refuse b"], "max_tokens": 200})
    assert answer.status == 429
    server.wait_for(lambda: len(server.journal_entries("abort")) > before)


def test_an_error_in_one_of_several_streams_ends_all_with_an_event(server: Server) -> None:
    body = {"prompt": ["slow a", "fail b"], "max_tokens": 200, "stream": True}
    events = server.call("/v1/completions", body).events
    assert events[-1]["error"]["code"] == "engine_error"


# -- models, tokenizer, rest ----------------------------------------------------------------


def test_models_are_listed_with_their_context(client: openai.OpenAI) -> None:
    listed = client.models.list().data
    assert [model.id for model in listed] == ["stub", "alias"]
    card = client.models.retrieve("alias").model_dump()
    assert card["max_model_len"] == 256


def test_an_alias_answers_under_its_name(server: Server) -> None:
    assert server.chat("hello", model="alias", max_tokens=1).json["model"] == "alias"
    assert server.chat("hello", max_tokens=1).json["model"] == "stub"


def test_tokenize_and_detokenize_are_inverse(server: Server) -> None:
    answer = server.call("/tokenize", {"prompt": "Grüße 😀", "return_token_strs": True}).json
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 256
    back = server.call("/detokenize", {"tokens": answer["tokens"]}).json
    assert back == {"prompt": "Grüße 😀"}
    beyond = server.call("/detokenize", {"tokens": [2**31 - 1]})
    assert (beyond.status, beyond.error["param"]) == (400, "tokens")
    chat = server.call("/tokenize", {"messages": USER}).json
    usage = server.chat("hello there", max_tokens=1).json["usage"]
    assert chat["count"] == usage["prompt_tokens"]


def test_health_version_and_metrics_answer(server: Server) -> None:
    server.chat("slow", max_tokens=4)
    for path in ("/livez", "/readyz", "/health"):
        assert server.call(path).json["status"] == "ok"
    assert set(server.call("/version").json) == {"version"}
    text = server.call("/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["yaie_engine_time_to_first_token_seconds_count"]) >= 1
    assert float(values["yaie_engine_inter_token_latency_seconds_count"]) >= 1
    assert float(values['yaie_engine_generations_total{finish_reason="length"}']) >= 1
    assert float(values["yaie_engine_prompt_tokens_total"]) == 7
    assert 0 <= float(values["yaie_engine_kv_utilization_ratio"]) <= 1
    route = 'yaie_engine_http_requests_total{route="/v1/chat/completions",status="200"}'
    assert float(values[route]) >= 1


def test_the_api_describes_itself(server: Server) -> None:
    schema = server.call("/openapi.json").json
    body = schema["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"]["$ref"].endswith("ChatCompletionRequest")


def test_an_unknown_model_is_told_with_those_that_are_served(server: Server) -> None:
    served = ", ".join(model["id"] for model in server.call("/v1/models").json["data"])
    refused = server.call(CHAT, {"messages": USER, "model": "org/other"})
    assert refused.error["message"].endswith(f"served is {served}.")


def test_the_request_id_is_echoed_or_made(server: Server) -> None:
    echoed = server.call("/version", headers={"x-request-id": "abc-1.2:3"})
    assert echoed.headers["x-request-id"] == "abc-1.2:3"
    made = server.call("/nope", headers={"x-request-id": "bad id\twith spaces"})
    assert re.fullmatch(r"[0-9a-f]{32}", made.headers["x-request-id"])
    assert '"request_id": "abc-1.2:3"' in server.log_text()


def test_the_engine_knows_the_request_by_its_id(server: Server) -> None:
    body = {"prompt": ["hello", "hello"], "max_tokens": 1}
    assert server.call("/v1/completions", body, headers={"x-request-id": "mine-1"}).status == 200
    ids = [entry["id"] for entry in server.journal_entries("generate")[-2:]]
    assert all(re.fullmatch(r"mine-1-[0-9a-f]{12}", name) for name in ids)
    assert len(set(ids)) == 2


# -- bad input ------------------------------------------------------------------------------

DEEP = json.loads("[" * 80 + "]" * 80)
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BAD_REQUESTS: dict[str, tuple[str, Any, int, str | None, str | None]] = {
    "malformed JSON": (CHAT, b'{"messages": [', 400, None, None),
    "empty body": (CHAT, b"", 400, None, None),
    "not UTF-8": (CHAT, b'{"model": "\xff"}', 400, None, None),
    "a list": (CHAT, [1], 400, None, None),
    "a NaN literal": (CHAT, b'{"messages": [], "temperature": NaN}', 400, None, None),
    "a huge number": (CHAT, b'{"messages": [], "temperature": 1e999}', 400, None, None),
    "nested too deeply": (CHAT, {"messages": USER, "x": DEEP}, 400, None, None),
    "brackets only": (CHAT, b"[" * 100_000, 400, None, None),
    "no messages": (CHAT, {}, 400, "messages", None),
    "empty messages": (CHAT, {"messages": []}, 400, "messages", None),
    "messages of a wrong type": (CHAT, {"messages": "hi"}, 400, "messages", None),
    "a wrong role": (CHAT, {"messages": [{"role": "x", "content": ""}]}, 400, "messages", None),
    "a user without content": (CHAT, {"messages": [{"role": "user"}]}, 400, "messages", None),
    "an image": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        400,
        "messages",
        "unsupported_content",
    ),
    "unknown model": (CHAT, {"messages": USER, "model": "x"}, 404, "model", "model_not_found"),
    "a model of a wrong type": (CHAT, {"messages": USER, "model": 3}, 400, "model", None),
    "negative temperature": (CHAT, {"messages": USER, "temperature": -1}, 400, "temperature", None),
    "temperature as text": (CHAT, {"messages": USER, "temperature": "1"}, 400, "temperature", None),
    "top_p of zero": (CHAT, {"messages": USER, "top_p": 0}, 400, "top_p", None),
    "min_p above one": (CHAT, {"messages": USER, "min_p": 1.5}, 400, "min_p", None),
    "top_k below -1": (CHAT, {"messages": USER, "top_k": -2}, 400, "top_k", None),
    "max_tokens of zero": (CHAT, {"messages": USER, "max_tokens": 0}, 400, "max_tokens", None),
    "negative max_tokens": (CHAT, {"messages": USER, "max_tokens": -5}, 400, "max_tokens", None),
    "max_tokens as boolean": (
        CHAT,
        {"messages": USER, "max_tokens": True},
        400,
        "max_tokens",
        None,
    ),
    "seed too large": (CHAT, {"messages": USER, "seed": 2**63}, 400, "seed", None),
    "an empty stop string": (CHAT, {"messages": USER, "stop": [""]}, 400, "stop", None),
    "many stop strings": (CHAT, {"messages": USER, "stop": ["a"] * 17}, 400, "stop", None),
    "n of zero": (CHAT, {"messages": USER, "n": 0}, 400, "n", None),
    "n above the limit": (CHAT, {"messages": USER, "n": 129}, 400, "n", None),
    "n without chance": (CHAT, {"messages": USER, "n": 2, "temperature": 0}, 400, "n", None),
    "best_of": (CHAT, {"messages": USER, "best_of": 3}, 400, "best_of", None),
    "a bias of no token": (
        CHAT,
        {"messages": USER, "logit_bias": {"x": 1}},
        400,
        "logit_bias",
        None,
    ),
    "a bias beyond the vocabulary": (
        CHAT,
        {"messages": USER, "logit_bias": {"99999": 1}},
        400,
        "logit_bias",
        None,
    ),
    "a large penalty": (
        CHAT,
        {"messages": USER, "presence_penalty": 2.5},
        400,
        "presence_penalty",
        None,
    ),
    "no repetition penalty": (
        CHAT,
        {"messages": USER, "repetition_penalty": 0},
        400,
        "repetition_penalty",
        None,
    ),
    "no allowed ids": (
        CHAT,
        {"messages": USER, "allowed_token_ids": []},
        400,
        "allowed_token_ids",
        None,
    ),
    "an empty bad word": (CHAT, {"messages": USER, "bad_words": [""]}, 400, "bad_words", None),
    "logprobs as a number": (CHAT, {"messages": USER, "logprobs": 3}, 400, "logprobs", None),
    "top_logprobs alone": (CHAT, {"messages": USER, "top_logprobs": 3}, 400, "top_logprobs", None),
    "many top_logprobs": (
        CHAT,
        {"messages": USER, "logprobs": True, "top_logprobs": 21},
        400,
        "top_logprobs",
        None,
    ),
    "prompt_logprobs in a stream": (
        CHAT,
        {"messages": USER, "prompt_logprobs": 1, "stream": True},
        400,
        "prompt_logprobs",
        None,
    ),
    "a priority without the policy": (
        CHAT,
        {"messages": USER, "priority": 1},
        400,
        "priority",
        None,
    ),
    "a tool that is none": (CHAT, {"messages": USER, "tools": [{}]}, 400, "tools", None),
    "no tools in the list": (CHAT, {"messages": USER, "tools": []}, 400, "tools", None),
    "a choice without tools": (
        CHAT,
        {"messages": USER, "tool_choice": "required"},
        400,
        "tool_choice",
        None,
    ),
    "a choice that is not there": (
        CHAT,
        {
            "messages": USER,
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
        },
        400,
        "tool_choice",
        None,
    ),
    "functions": (
        CHAT,
        {"messages": USER, "functions": []},
        400,
        "functions",
        "unsupported_parameter",
    ),
    "an unknown form": (
        CHAT,
        {"messages": USER, "response_format": {"type": "sound"}},
        400,
        "response_format",
        None,
    ),
    "a form without schema": (
        CHAT,
        {"messages": USER, "response_format": {"type": "json_schema"}},
        400,
        "response_format",
        None,
    ),
    "two forms": (
        CHAT,
        {"messages": USER, "guided_regex": "a", "guided_choice": ["a"]},
        400,
        "guided_choice",
        None,
    ),
    "a constraint that is not known": (
        CHAT,
        {"messages": USER, "stop_regex": "a"},
        400,
        "stop_regex",
        "unsupported_parameter",
    ),
    "continuing nothing": (
        CHAT,
        {"messages": [{"role": "assistant"}], "continue_final_message": True},
        400,
        "continue_final_message",
        None,
    ),
    "continuing and opening a turn": (
        CHAT,
        {"messages": USER, "continue_final_message": True, "add_generation_prompt": True},
        400,
        "continue_final_message",
        None,
    ),
    "keeping no tokens": (
        CHAT,
        {"messages": USER, "truncate_prompt_tokens": 0},
        400,
        "truncate_prompt_tokens",
        None,
    ),
    "a template in the request": (
        CHAT,
        {"messages": USER, "chat_template": "{{ 1 }}"},
        400,
        "chat_template",
        "unsupported_parameter",
    ),
    "stream options without stream": (
        CHAT,
        {"messages": USER, "stream_options": {"include_usage": True}},
        400,
        "stream_options",
        None,
    ),
    "a template variable that is taken": (
        CHAT,
        {"messages": USER, "chat_template_kwargs": {"messages": []}},
        400,
        "chat_template_kwargs",
        None,
    ),
    "no prompt": (TEXT, {}, 400, "prompt", None),
    "an empty prompt": (TEXT, {"prompt": ""}, 400, "prompt", None),
    "an empty list": (TEXT, {"prompt": []}, 400, "prompt", None),
    "a mixed list": (TEXT, {"prompt": ["a", 1]}, 400, "prompt", None),
    "a negative token id": (TEXT, {"prompt": [-1]}, 400, "prompt", None),
    "a token id outside the vocabulary": (TEXT, {"prompt": [100_000]}, 400, "prompt", None),
    "too many prompts": (TEXT, {"prompt": ["a"] * 129}, 400, "prompt", None),
    "too many outputs": (TEXT, {"prompt": ["a"] * 100, "n": 100}, 400, "n", None),
    "logprobs as truth": (TEXT, {"prompt": "a", "logprobs": True}, 400, "logprobs", None),
    "suffix": (TEXT, {"prompt": "a", "suffix": "z"}, 400, "suffix", "unsupported_parameter"),
    "a salt with a slash": (TEXT, {"prompt": "a", "cache_salt": "a/b"}, 400, "cache_salt", None),
    "tokenize without input": ("/tokenize", {}, 400, "prompt", None),
    "detokenize of text": ("/detokenize", {"tokens": "x"}, 400, "tokens", None),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_bad_input_gets_a_clear_error(server: Server, case: str) -> None:
    path, body, status, param, code = BAD_REQUESTS[case]
    answer = server.call(path, body)
    assert answer.status == status
    error = answer.error
    assert (error["param"], error["code"]) == (param, code)
    assert len(error["message"]) > 10
    assert not re.search(r"0x[0-9a-f]{6,}|/usr|/home|pydantic|Traceback", error["message"])


@pytest.mark.parametrize(
    "text",
    [
        rb"\ud800",
        rb"\ud800 abc",
        rb"\ud800, and much more text",
        rb"\uDC00",
        rb"\ud83d\ude00 \\ud800 \ud800",
        rb"\ud800\ud83d\ude00",
        rb"\\\ud800",
    ],
)
def test_half_of_a_surrogate_pair_is_named(server: Server, text: bytes) -> None:
    answer = server.call("/v1/completions", b'{"prompt": "' + text + b'"}')
    assert answer.status == 400
    assert "half of a surrogate pair" in answer.error["message"]


@pytest.mark.parametrize("text", [rb"\ud83d\ude00", rb"\\ud800", rb"\ud83d\ude00 and more"])
def test_a_body_that_was_cut_off_is_not_blamed_on_its_pairs(server: Server, text: bytes) -> None:
    answer = server.call("/v1/completions", b'{"prompt": "' + text)
    assert answer.error["message"].endswith("Input data was truncated.")


def test_a_byte_order_mark_is_passed_over(server: Server) -> None:
    body = b'\xef\xbb\xbf{"prompt": "hello", "max_tokens": 2}'
    assert server.call("/v1/completions", body).status == 200


@pytest.mark.parametrize("fields", [{"prompt": "hello " * 300}, {"prompt": "a", "max_tokens": 256}])
def test_what_does_not_fit_names_the_context(server: Server, fields: dict[str, Any]) -> None:
    answer = server.call("/v1/completions", fields)
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.error["message"].startswith(
        "This model's maximum context length is 256 tokens. However, you requested "
    )


def test_paths_and_methods_that_do_not_exist_have_the_envelope(server: Server) -> None:
    missing = server.call("/v1/nothing")
    assert (missing.status, missing.error["code"]) == (404, "path_not_found")
    wrong = server.call("/v1/chat/completions")
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    assert "POST" in wrong.headers["allow"]
    assert wrong.error["message"] == "GET is not allowed here; use POST."


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("GET", "/v1/chat/completions/abc", "/v1/chat/completions"),
        ("GET", "/v1/chat", "/v1/chat/completions"),
        ("POST", "/v1/responses/compact", "/v1/responses"),
        ("PUT", "/v1/responses/latest", "/v1/responses"),
        ("GET", "/v1/responses/resp_1/other", "/v1/responses"),
        ("POST", "/v1/models/nope/load", "/v1/models"),
        ("DELETE", "/v1/models/nope", "/v1/models"),
        ("GET", "/v1/embeddings/x", "/v1/embeddings"),
    ],
)
def test_a_child_that_is_not_there_is_an_unknown_path_whatever_the_method(
    server: Server, method: str, path: str, meant: str
) -> None:
    answer = server.call(path, method=method)
    assert (answer.status, answer.error["code"]) == (404, "path_not_found")
    assert answer.error["message"] == f"No such path. Did you mean {meant}?"


def test_a_wrong_method_is_told_all_right_ones(server: Server) -> None:
    stored = server.call("/v1/responses/resp_1", method="PUT")
    assert (stored.status, stored.headers["allow"]) == (405, "DELETE, GET, HEAD")
    assert stored.error["message"] == "PUT is not allowed here; use DELETE or GET."
    assert server.call("/v1/models/stub", method="DELETE").headers["allow"] == "GET, HEAD"


def test_a_body_that_is_too_large_is_refused(server: Server) -> None:
    answer = server.call("/v1/completions", b" " * (4 * 1024 * 1024 + 1))
    assert (answer.status, answer.error["code"]) == (413, "payload_too_large")


def test_a_body_that_says_that_it_is_huge_is_answered_before_it_comes(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-length: 99999999999\r\n\r\n{"
        )
        started = time.monotonic()
        answer = raw.recv(4096)
    assert time.monotonic() - started < 4
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


def test_a_client_that_leaves_in_its_own_body_is_no_failure(server: Server) -> None:
    def failed() -> bool:
        return 'status="500"' in server.call("/metrics").body.decode()

    before = failed()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 50\r\n\r\n{"
        )
    deadline = time.monotonic() + 5
    while 'status="499"' not in server.call("/metrics").body.decode():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert failed() == before


def test_head_is_answered_like_get_without_a_body(server: Server) -> None:
    for path in ("/readyz", "/v1/models", "/metrics"):
        answer = server.call(path, method="HEAD")
        assert (answer.status, answer.body) == (200, b"")


def test_a_chunked_body_that_grows_too_large_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 1.1.1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        piece = b" " * 65536
        try:
            for _ in range(70):
                raw.sendall(b"10000\r\n" + piece + b"\r\n")
        except OSError:
            pass  # the server has closed its side already
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_large_headers_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(b"GET /version HTTP/1.1\r\nhost: 1.1.1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "identity, br", "zstd"])
def test_a_compressed_body_is_refused_with_what_is_taken_instead(
    server: Server, encoding: str
) -> None:
    body = gzip.compress(json.dumps({"messages": USER}).encode())
    answer = server.call("/v1/chat/completions", body, headers={"content-encoding": encoding})
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert answer.error["code"] == "unsupported_content_encoding"
    assert "without Content-Encoding" in answer.error["message"]


def test_two_content_encodings_do_not_hide_each_other(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-encoding: identity\r\n"
            b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}"
        )
        assert raw.recv(4096).startswith(b"HTTP/1.1 415 ")


def test_a_body_that_is_sent_as_it_is_may_say_so(server: Server) -> None:
    body = {"prompt": "hello", "max_tokens": 2}
    assert server.call("/v1/completions", body, headers={"content-encoding": "identity"}).json


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (b"GET /v1/realtime", b"", b"404"),
        (b"GET /v1/chat/completions", b"", b"405"),
        (b"POST /v1/completions", b'{"prompt": "hello", "max_tokens": 2}', b"200"),
    ],
)
@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_an_upgrade_is_passed_over_and_the_request_answered(
    server: Server, head: bytes, body: bytes, status: bytes, protocol: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(
            head + b" HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: " + protocol
            + b"\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            + b"content-length: %d\r\n\r\n" % len(body) + body
        )  # fmt: skip
        assert raw.recv(4096).startswith(b"HTTP/1.1 " + status)
    assert "pip install" not in server.log_text()
    assert "upgrade" not in server.log_text()


def test_what_is_not_http_gets_the_envelope(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        raw.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"type": "invalid_request_error"' in answer


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
def test_web_pages_of_others_cannot_use_a_local_server(
    server: Server, headers: dict[str, str]
) -> None:
    answer = server.call("/v1/models", headers=headers)
    assert (answer.status, answer.error["code"]) == (400, "foreign_host")


def test_many_headers_are_refused(server: Server) -> None:
    headers = {f"x-h{index}": "1" for index in range(200)}
    assert server.call("/version", headers=headers).status == 413


def test_the_engine_s_refusal_comes_before_the_headers(server: Server) -> None:
    for stream in (False, True):
        full = server.chat("refuse this", stream=stream)
        assert (full.status, full.error["code"]) == (429, "queue_full")
        assert full.headers["retry-after"] == "3"
        never = server.chat("never fits", stream=stream)
        assert (never.status, never.error["param"]) == (400, "messages")


def test_an_error_of_the_engine_is_told(server: Server) -> None:
    whole = server.chat("fail now")
    assert (whole.status, whole.error["message"]) == (500, "The numbers were not finite.")
    events = server.chat("fail now", stream=True).events
    assert events[-1]["error"]["message"] == "The numbers were not finite."


def test_the_openai_client_raises_on_an_error_event(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "fail now"}]
    stream = client.chat.completions.create(model="stub", messages=messages, stream=True)  # type: ignore[call-overload]  # a plain dict
    with pytest.raises(openai.APIError, match="not finite"):
        list(stream)


# -- clients that leave ---------------------------------------------------------------------


def post(server: Server, body: dict[str, Any]) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: 1.1.1.1\r\ncontent-length: {len(data)}\r\n\r\n"
    raw.sendall(head.encode() + data)
    return raw


def aborts_so_far(server: Server) -> int:
    """Once nothing runs. The engine takes messages in order: what was sent before a request has
    been taken when that ends.
    """
    server.wait_for(lambda: server.call("/load").json["server_load"] == 0)
    assert server.chat("hello", max_tokens=5).status == 200
    return len(server.journal_entries("abort"))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["slow and long", "mute", ["slow a", "slow b"]])
def test_a_client_that_leaves_aborts_its_request(server: Server, stream: bool, prompt: Any) -> None:
    expected = len(prompt) if isinstance(prompt, list) else 1
    aborts = aborts_so_far(server)
    generates = len(server.journal_entries("generate"))
    raw = post(server, {"prompt": prompt, "max_tokens": 200, "stream": stream})
    server.wait_for(lambda: len(server.journal_entries("generate")) == generates + expected)
    if stream:
        assert raw.recv(64).startswith(b"HTTP/1.1 200")
    raw.close()
    server.wait_for(lambda: len(server.journal_entries("abort")) >= aborts + expected)
    assert aborts_so_far(server) == aborts + expected


def test_a_finished_request_is_not_aborted(server: Server) -> None:
    before = aborts_so_far(server)
    assert server.chat("hello", max_tokens=5).status == 200
    assert aborts_so_far(server) == before


def test_prompts_are_not_in_the_log(server: Server) -> None:
    server.chat("hello secret-word-7", max_tokens=20)
    server.call("/v1/chat/completions", {"messages": [{"role": "secret-word-8", "content": "x"}]})
    assert "secret-word" not in server.log_text()


def error_free(answer: Answer) -> bool:
    return answer.status == 200


def test_the_server_still_answers_after_all_this(server: Server) -> None:
    assert error_free(server.chat("hello", max_tokens=2))
    assert "Traceback" not in server.log_text()
