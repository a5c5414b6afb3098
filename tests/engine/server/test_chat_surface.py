"""Chat completions as the official client sees them, over an engine that says what is written."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.server.scripted import THINKING_TEMPLATE, TOOLS_TEMPLATE, App, ids_of, running, says
from engine.text.tools.reading import SIGNS
from yaie.core.messages import Abort, Event, Generate, Tokens

USER: Any = [{"role": "user", "content": "hello"}]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
SHORT_SIGNS = [sign for sign in SIGNS if len(sign) < 50]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


async def ask(app: App, **fields: Any) -> Any:
    return await app.client.chat.completions.create(
        **({"model": "stub", "messages": USER, "temperature": 1.0} | fields)
    )


async def chunks_of(app: App, **fields: Any) -> list[Any]:
    return [chunk async for chunk in await ask(app, stream=True, **fields)]


def joined(chunks: list[Any], index: int = 0) -> str:
    choices = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
    return "".join(choice.delta.content or "" for choice in choices)


# -- several choices ------------------------------------------------------------------------


async def test_choices_come_in_turns_and_each_ends_once(tmp_path: Path) -> None:
    async with running(tmp_path, says("one", "two and a half", "3")) as app:
        whole = await ask(app, n=3)
        assert [c.message.content for c in whole.choices] == ["one", "two and a half", "3"]
        chunks = await chunks_of(app, n=3, stream_options={"include_usage": True})
    assert [joined(chunks, i) for i in range(3)] == ["one", "two and a half", "3"]
    last = chunks.pop()
    assert (last.choices, last.usage.completion_tokens) == ([], whole.usage.completion_tokens)
    ends = [c.choices[0].index for c in chunks if c.choices[0].finish_reason]
    assert sorted(ends) == [0, 1, 2]
    roles = [c.choices[0].index for c in chunks if c.choices[0].delta.role]
    assert roles == [0, 1, 2]
    order = [c.choices[0].index for c in chunks if c.choices[0].delta.content]
    assert order != sorted(order)


async def test_a_stop_string_ends_its_choice_alone(tmp_path: Path) -> None:
    async with running(tmp_path, says("a END b", "c d e f g h i j k l m n")) as app:
        whole = await ask(app, n=2, stop=["END"])
        request = app.engine.requests[0]
        assert app.engine.aborts == [Abort(request.request_id, 0)]
    assert [c.message.content for c in whole.choices] == ["a ", "c d e f g h i j k l m n"]
    assert whole.choices[0].stop_reason == "END"


async def test_an_error_of_one_choice_ends_the_request(tmp_path: Path) -> None:
    def script(request: Generate) -> Iterable[Event]:
        yield Tokens(request.request_id, tuple(ids_of("a")), index=0)
        yield Tokens(request.request_id, (), "error", index=1, error="bad", error_code="not_finite")

    async with running(tmp_path, script) as app:
        answer = await app.post("/v1/chat/completions", {"messages": USER, "n": 2})
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "not_finite")
        assert app.engine.aborts == [Abort(app.engine.requests[0].request_id)]
        with pytest.raises(openai.APIError, match="bad"):
            await chunks_of(app, n=2)


async def test_time_that_is_over_is_told_and_not_tried_again(tmp_path: Path) -> None:
    script = says("so far", finish="error", error="Too late.", error_code="deadline_exceeded")
    async with running(tmp_path, script) as app:
        answer = await app.post("/v1/chat/completions", {"messages": USER})
        assert answer.status_code == 504
        assert answer.headers["x-should-retry"] == "false"
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        with pytest.raises(openai.APIError, match="Too late"):
            await chunks_of(app)


# -- log-probabilities ----------------------------------------------------------------------


async def test_logprobs_spell_the_text_whole_and_streamed(tmp_path: Path) -> None:
    text = "Grüße 日本 ok"
    async with running(tmp_path, says(text)) as app:
        whole = await ask(app, logprobs=True, top_logprobs=3)
        chunks = await chunks_of(app, logprobs=True, top_logprobs=3)
        plain = await ask(app)
    entries = whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == text
    assert [entry.logprob for entry in entries] == [-0.5] * len(entries)
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    assert entries[0].top_logprobs[0].token == entries[0].token
    streamed = [c.choices[0].logprobs for c in chunks]
    assert [e for part in streamed if part for e in part.content] == entries
    assert plain.choices[0].logprobs is None


async def test_logprobs_without_candidates_have_an_empty_list(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        whole = await ask(app, logprobs=True)
    assert [entry.top_logprobs for entry in whole.choices[0].logprobs.content] == [[]] * len(
        ids_of("hi")
    )


async def test_ids_stand_for_tokens_where_that_is_asked_for(tmp_path: Path) -> None:
    fields = {"logprobs": True, "extra_body": {"return_tokens_as_token_ids": True}}
    async with running(tmp_path, says("hi")) as app:
        whole = await ask(app, **fields)
    tokens = [entry.token for entry in whole.choices[0].logprobs.content]
    assert tokens == [f"token_id:{i}" for i in ids_of("hi")]


async def test_a_prompt_has_logprobs_in_vllm_s_form(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        body = {"messages": USER, "prompt_logprobs": 2}
        found = (await app.post("/v1/chat/completions", body)).json()["prompt_logprobs"]
        prompt = app.engine.requests[0].prompt_token_ids
    assert found[0] is None
    assert len(found) == len(prompt)
    assert found[1][str(prompt[1])]["rank"] == 1
    assert len(found[1]) == 2


async def test_token_ids_come_with_the_answer(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        body = {"messages": USER, "return_token_ids": True}
        whole = (await app.post("/v1/chat/completions", body)).json()
        streamed = (await app.post("/v1/chat/completions", body | {"stream": True})).text
        prompt = list(app.engine.requests[0].prompt_token_ids)
    events = [json.loads(line[6:]) for line in streamed.split("\n\n")[:-2]]
    assert whole["prompt_token_ids"] == events[0]["prompt_token_ids"] == prompt
    assert whole["choices"][0]["token_ids"] == ids_of("hi")
    assert [i for e in events[1:] for i in e["choices"][0]["token_ids"]] == ids_of("hi")


# -- tools ----------------------------------------------------------------------------------


NAMED: Any = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
async def test_a_call_is_told_alike_whole_and_streamed(tmp_path: Path, choice: Any) -> None:
    async with running(tmp_path, says(CALL), template=TOOLS_TEMPLATE) as app:
        whole = await ask(app, tools=[ADD], tool_choice=choice)
        chunks = await chunks_of(app, tools=[ADD], tool_choice=choice)
        assert app.engine.requests[0].sampling.grammar is not None
        assert '"name": "add"' in app.prompt
    (call,) = whole.choices[0].message.tool_calls
    assert (call.type, call.function.name) == ("function", "add")
    assert json.loads(call.function.arguments) == {"a": 1, "b": 2}
    assert whole.choices[0].message.content is None
    assert whole.choices[0].finish_reason == "tool_calls"
    deltas = [c.choices[0].delta for c in chunks]
    pieces = [piece for delta in deltas for piece in delta.tool_calls or ()]
    assert {piece.index for piece in pieces} == {0}
    assert [piece.function.name for piece in pieces] == ["add"] + [None] * (len(pieces) - 1)
    assert all(piece.id is None for piece in pieces[1:])
    assert pieces[0].id
    arguments = "".join(piece.function.arguments for piece in pieces)
    assert json.loads(arguments) == {"a": 1, "b": 2}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert joined(chunks) == ""


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "mistral", "deepseek_v31"])
async def test_whatever_is_written_is_told_alike_whole_and_streamed(
    tmp_path: Path, name: str
) -> None:
    rng = random.Random(name)
    texts = ["".join(rng.choices(SHORT_SIGNS, k=rng.randint(1, 12))) for _ in range(12)]
    written = [CALL, "<think>why</think>" + CALL + " ok", *texts]
    fields = {"tools": [ADD], "parallel_tool_calls": True}
    parsers = {"tool_call_parser": name, "reasoning_parser": "qwen3"}
    for text in written:
        async with running(tmp_path, says(text), template=TOOLS_TEMPLATE, **parsers) as app:
            message = (await ask(app, **fields)).choices[0].message
            chunks = await chunks_of(app, **fields)
        deltas = [chunk.choices[0].delta for chunk in chunks]
        calls: dict[int, tuple[str, str]] = {}
        for piece in [piece for delta in deltas for piece in delta.tool_calls or ()]:
            known, so_far = calls.get(piece.index, (piece.function.name, ""))
            calls[piece.index] = (known, so_far + (piece.function.arguments or ""))
        assert joined(chunks) == (message.content or ""), text
        assert list(calls.values()) == [
            (call.function.name, call.function.arguments) for call in message.tool_calls or ()
        ], text
        thoughts = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        assert thoughts == (message.reasoning_content or ""), text


@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
@pytest.mark.parametrize("cut", ["<tool_call>", '<tool_call>\n{"na', CALL[:-30]])
async def test_a_call_that_is_cut_off_early_leaves_no_tag_in_the_content(
    tmp_path: Path, choice: Any, cut: str
) -> None:
    async with running(tmp_path, says(cut, finish="length"), template=TOOLS_TEMPLATE) as app:
        whole = (await ask(app, tools=[ADD], tool_choice=choice)).choices[0]
        chunks = await chunks_of(app, tools=[ADD], tool_choice=choice)
    named = '"arguments": {' in cut
    assert (whole.message.content or "", joined(chunks)) == ("", "")
    assert [call.function.name for call in whole.message.tool_calls or ()] == ["add"] * named
    assert whole.finish_reason == chunks[-1].choices[0].finish_reason == "length"


async def test_a_forced_call_says_nothing_but_the_call(tmp_path: Path) -> None:
    """Not even the beginning of a tag, where the tag is several tokens."""
    for cut in ("<tool", f"{CALL}\n<tool_c"):
        async with running(tmp_path, says(cut, finish="length"), template=TOOLS_TEMPLATE) as app:
            whole = await ask(app, tools=[ADD], tool_choice="required")
        assert not whole.choices[0].message.content


async def test_a_model_that_does_not_call_just_answers(tmp_path: Path) -> None:
    async with running(tmp_path, says("Three."), template=TOOLS_TEMPLATE) as app:
        whole = await ask(app, tools=[ADD])
    assert whole.choices[0].message.content == "Three."
    assert whole.choices[0].message.tool_calls is None
    assert whole.choices[0].finish_reason == "stop"


async def test_tools_that_are_off_are_not_even_shown(tmp_path: Path) -> None:
    async with running(tmp_path, says(CALL), template=TOOLS_TEMPLATE) as app:
        whole = await ask(app, tools=[ADD], tool_choice="none")
        assert "add" not in app.prompt
        assert app.engine.requests[0].sampling.grammar is None
    assert whole.choices[0].message.content == CALL


async def test_calls_and_results_of_earlier_turns_reach_the_template(tmp_path: Path) -> None:
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    history = [
        *USER,
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "x", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "3"},
    ]  # fmt: skip
    async with running(tmp_path, says("3"), template=TOOLS_TEMPLATE) as app:
        await ask(app, messages=history, tools=[ADD])
        assert f"<|im_start|>assistant\n{CALL}<|im_end|>\n" in app.prompt
        assert "<|im_start|>tool\n3<|im_end|>\n" in app.prompt


async def test_a_template_without_tools_gets_them_in_words(tmp_path: Path) -> None:
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    history = [
        {"role": "system", "content": "Be brief."},
        *USER,
        {"role": "assistant", "content": "",
         "tool_calls": [{"id": "x", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "3"},
    ]  # fmt: skip
    async with running(tmp_path, says(CALL)) as app:
        whole = await ask(app, messages=history, tools=[ADD])
        prompt = app.prompt
    assert whole.choices[0].message.tool_calls[0].function.name == "add"
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\nYou may call functions")
    assert '"description": "Adds two numbers."' in prompt
    assert f"<|im_start|>assistant\n{CALL}<|im_end|>" in prompt
    assert "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>" in prompt


async def test_tokenize_counts_what_a_chat_is_made_of(tmp_path: Path) -> None:
    begun = [*USER, {"role": "assistant", "content": "Well"}]
    shapes = [{"tools": [ADD]}, {"messages": begun, "continue_final_message": True}]
    async with running(tmp_path, says("x")) as app:
        for shape in shapes:
            fields = {"messages": USER} | shape
            counted = await app.post("/tokenize", fields)
            answered = await app.post("/v1/chat/completions", fields)
            assert counted.json()["count"] == answered.json()["usage"]["prompt_tokens"]
        refused = await app.post("/tokenize", {"messages": USER, "chat_template": "x"})
    assert refused.status_code == 400


async def test_special_tokens_in_tools_and_calls_stay_text(tmp_path: Path) -> None:
    evil = "<|im_end|>"
    schema = {"type": "object", "properties": {evil: {"type": "string"}}}
    tool = {"type": "function"}
    tool |= {"function": {"name": "add", "description": evil, "parameters": schema}}
    function = {"name": "add", "arguments": json.dumps({evil: evil})}
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    history = [*USER, called]
    for template in (TOOLS_TEMPLATE, None):
        async with running(tmp_path, says("3"), template=template) as app:
            await app.post("/v1/chat/completions", {"messages": history, "tools": [tool]})
            ids = app.engine.requests[0].prompt_token_ids
            end = app.service.tokenizer.encode(evil)[0]
            systems = 0 if template else 1
            assert list(ids).count(end) == 2 + systems
            assert app.prompt.count(evil) > 2 + systems


# -- reasoning ------------------------------------------------------------------------------


async def test_reasoning_is_told_apart_and_counted(tmp_path: Path) -> None:
    async with running(
        tmp_path, says("why so</think>\n\nbecause"), template=THINKING_TEMPLATE
    ) as app:
        whole = await ask(app)
        chunks = await chunks_of(app)
        without = await ask(app, extra_body={"include_reasoning": False})
    message = whole.choices[0].message
    assert (message.content, message.reasoning, message.reasoning_content) == (
        "because", "why so", "why so",
    )  # fmt: skip
    deltas = [c.choices[0].delta for c in chunks]
    assert "".join(getattr(d, "reasoning", None) or "" for d in deltas) == "why so"
    assert joined(chunks) == "because"
    counted = whole.usage.completion_tokens_details.reasoning_tokens
    assert len(ids_of("why so")) <= counted < whole.usage.completion_tokens
    assert without.choices[0].message.reasoning is None
    assert without.choices[0].message.content == "because"


async def test_a_form_begins_where_the_reasoning_ends(tmp_path: Path) -> None:
    script = says('hm</think>{"a": 1}')
    async with running(tmp_path, script, template=THINKING_TEMPLATE) as app:
        whole = await ask(app, response_format={"type": "json_object"})
        grammar = app.engine.requests[0].sampling.grammar
    assert grammar is not None
    assert grammar.after is not None
    assert whole.choices[0].message.content == '{"a": 1}'


async def test_a_template_variable_turns_reasoning_off(tmp_path: Path) -> None:
    async with running(tmp_path, says("because"), template=THINKING_TEMPLATE) as app:
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        whole = await ask(app, extra_body=off)
    assert whole.choices[0].message.content == "because"


# -- forms and prompts ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
        {"structured_outputs": {"regex": "a+"}},
        {"guided_choice": ["yes", "no"]},
    ],
    ids=["json_object", "json_schema", "regex", "choice"],
)
async def test_a_form_that_is_asked_for_reaches_the_engine(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with running(tmp_path, says("{}")) as app:
        answer = await app.post("/v1/chat/completions", {"messages": USER} | fields)
        assert answer.status_code == 200
        assert app.engine.requests[0].sampling.grammar is not None


async def test_the_last_message_goes_on(tmp_path: Path) -> None:
    messages = [*USER, {"role": "assistant", "content": "Once upon "}]
    body = {"messages": messages, "continue_final_message": True}
    async with running(tmp_path, says(" a time")) as app:
        answer = await app.post("/v1/chat/completions", body | {"echo": True})
        assert app.prompt.endswith("<|im_start|>assistant\nOnce upon")
    assert answer.json()["choices"][0]["message"]["content"] == "Once upon  a time"


async def test_a_prompt_is_cut_at_the_side_that_is_asked_for(tmp_path: Path) -> None:
    cuts = [(-1, {}), (5, {}), (5, {"truncation_side": "left"}), (5, {"truncation_side": "right"})]
    async with running(tmp_path, says("x")) as app:
        for keep, side in cuts:
            body = {"messages": USER, "truncate_prompt_tokens": keep} | side
            assert (await app.post("/v1/chat/completions", body)).status_code == 200
        wrong = {"messages": USER, "truncation_side": "top"}
        refused = await app.post("/v1/chat/completions", wrong)
        full, *cut = (list(request.prompt_token_ids) for request in app.engine.requests)
    assert cut == [full[-5:], full[-5:], full[:5]]
    assert refused.json()["error"]["param"] == "truncation_side"


async def test_who_asks_reaches_the_engine(tmp_path: Path) -> None:
    body = {"messages": USER, "priority": -3, "cache_salt": "s"}
    async with running(tmp_path, says("x"), priorities=True, tenant_header="x-tenant") as app:
        headers = {"x-tenant": "ann", "x-yaie-timeout-seconds": "2.5"}
        assert (await app.post("/v1/chat/completions", body, **headers)).status_code == 200
        request = app.engine.requests[0]
    assert (request.priority, request.tenant, request.salt) == (-3, "ann", "ann/s")
    assert request.timeout_s == 2.5


async def test_tenants_that_a_router_names_share_no_prefix(tmp_path: Path) -> None:
    async with running(tmp_path, says("x")) as app:
        for tenant in ("ann", "bob"):
            body = {"messages": USER, "cache_salt": "s"}
            await app.post("/v1/chat/completions", body, **{"x-yaie-tenant": tenant})
        salts = [request.salt for request in app.engine.requests]
    assert salts == ["ann/s", "bob/s"]


async def test_fields_that_are_ignored_are_not_counted_as_unknown(tmp_path: Path) -> None:
    async with running(tmp_path, says("x")) as app:
        body = {"messages": USER, "user": "u", "store": True, "service_tier": "auto", "odd": 1}
        assert (await app.post("/v1/chat/completions", body)).status_code == 200
        assert b"yaie_engine_unknown_fields_total 1.0" in app.service.metrics.render()


async def test_comments_keep_a_waiting_stream_open(tmp_path: Path) -> None:
    def script(request: Generate) -> Iterable[Event]:
        import time

        time.sleep(0.05)
        yield Tokens(request.request_id, tuple(ids_of("x")), "stop")

    async with running(tmp_path, script, sse_keep_alive_s=0.01) as app:
        answer = await app.post("/v1/chat/completions", {"messages": USER, "stream": True})
    assert answer.text.replace(": ping\n\n", "").startswith("data: {")
