"""What coding agents need of the responses API, over an engine that says what is written down."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from engine.server.responses.requests import AGENTS, CODEX, COMMAND, PATCH
from engine.server.scripted import TOOLS_TEMPLATE, App, running, says
from yaie.core.request import SamplingParams

THOUGHTS = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}assistant: "
)


def call(name: str, **arguments: Any) -> str:
    written = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


async def respond(app: App, **fields: Any) -> Any:
    answer = await app.post("/v1/responses", {"input": "hello"} | fields)
    assert answer.status_code == 200, answer.text
    return answer


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def sampling(app: App) -> SamplingParams:
    return app.engine.requests[-1].sampling


# -- the requests of Codex ----------------------------------------------------------------------


async def test_codex_gets_its_command_from_a_stream(tmp_path: Path) -> None:
    said = says("Hello. " + call("exec_command", cmd="ls"))
    async with running(tmp_path, said, template=TOOLS_TEMPLATE) as app:
        answer = await respond(app, **CODEX)
        prompt = app.prompt
    events = events_of(answer.text)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["message", "function_call"]
    assert (items[1]["name"], items[1]["arguments"]) == ("exec_command", '{"cmd": "ls"}')
    assert "namespace" not in items[1]
    usage = events[-1]["response"]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert prompt.count("<|im_start|>system") == 1
    assert prompt.count("<tool>") == 4
    assert "web_search" not in prompt


async def test_codex_s_output_of_a_command_goes_on_the_conversation(tmp_path: Path) -> None:
    async with running(tmp_path, says("Done."), template=TOOLS_TEMPLATE) as app:
        items = [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
            {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "README.md"},
            {
                "type": "function_call",
                "call_id": "c2",
                "name": "close_agent",
                "namespace": "multi_agent_v1",
                "arguments": '{"target": "a"}',
            },
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "closed"}],
            },
            {
                "type": "custom_tool_call",
                "call_id": "c3",
                "name": "apply_patch",
                "input": 'a "b"\n',
            },
            {"type": "custom_tool_call_output", "call_id": "c3", "output": "Success."},
        ]
        await respond(app, **(CODEX | {"input": [*CODEX["input"], *items]}))
        prompt = app.prompt
    assert "tool\nREADME.md" in prompt
    assert '"name": "multi_agent_v1__close_agent", "arguments": {"target": "a"}' in prompt
    assert "tool\nclosed" in prompt
    assert r'"arguments": {"input": "a \"b\"\n"}' in prompt
    assert "tool\nSuccess." in prompt


async def test_what_is_left_out_is_said_in_a_header_and_in_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, says("a")) as app:
        with caplog.at_level(logging.INFO, "yaie.server.request.left_out"):
            tools = [{"type": "web_search"}, {"type": 'odd"\r\nkind'}]
            records = [{"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "a"}]
            wish = {"tools": tools, "text": {"verbosity": "low"}, "input": records}
            whole = await respond(app, **wish)
            streamed = await respond(app, **wish, stream=True)
            silent = await respond(app, text={"verbosity": "medium"})
    expected = (
        '299 - "This server left out: tools of type web_search, tools of type odd???kind, '
        'items of type web_search_call, text.verbosity"'
    )
    assert whole.headers["warning"] == streamed.headers["warning"] == expected
    assert "warning" not in silent.headers
    said = [record.message for record in caplog.records if record.name.endswith(".left_out")]
    assert said == ["left out"] * 2


# -- tools --------------------------------------------------------------------------------------


async def test_a_namespace_s_function_is_called_back_by_the_client_s_names(tmp_path: Path) -> None:
    said = says(call("multi_agent_v1__close_agent", target="a"))
    async with running(tmp_path, said, template=TOOLS_TEMPLATE) as app:
        body = (await respond(app, tools=[COMMAND, AGENTS])).json()
        events = events_of((await respond(app, tools=[COMMAND, AGENTS], stream=True)).text)
    (item,) = body["output"]
    assert (item["name"], item["namespace"]) == ("close_agent", "multi_agent_v1")
    (done,) = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert (done["name"], json.loads(done["arguments"])) == ("close_agent", {"target": "a"})


async def test_a_custom_tool_s_input_streams_as_text(tmp_path: Path) -> None:
    patch = '*** Begin Patch\n+print("é\\n")\n*** End Patch'
    said = says(call("apply_patch", input=patch))
    async with running(tmp_path, said, template=TOOLS_TEMPLATE) as app:
        events = events_of((await respond(app, tools=[PATCH], stream=True)).text)
        whole = (await respond(app, tools=[PATCH])).json()["output"]
        official = await app.client.responses.create(
            model="stub", input="a", tools=[{"type": "custom", "name": "apply_patch"}]
        )
    kinds = [event["type"] for event in events]
    deltas = [e for e in events if e["type"] == "response.custom_tool_call_input.delta"]
    assert len(deltas) > 3
    assert "".join(event["delta"] for event in deltas) == patch
    (done,) = [e for e in events if e["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == patch
    assert kinds.index("response.custom_tool_call_input.done") == len(kinds) - 3
    assert (whole[0]["type"], whole[0]["input"]) == ("custom_tool_call", patch)
    assert "arguments" not in whole[0]
    assert official.output[0].type == "custom_tool_call"
    assert official.output[0].input == patch


async def test_a_custom_tool_s_grammar_is_enforced_inside_the_call(tmp_path: Path) -> None:
    async with running(tmp_path, says("a"), template=TOOLS_TEMPLATE) as app:
        await respond(app, tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"})
        grammar = sampling(app).grammar
    assert grammar is not None
    assert "*** Begin Patch" in grammar.text
    assert '{\\"input\\":' in grammar.text


async def test_only_allowed_tools_can_be_called_and_the_prompt_shows_all(tmp_path: Path) -> None:
    async with running(tmp_path, says("a"), template=TOOLS_TEMPLATE) as app:
        allowed = [{"type": "function", "name": "exec_command"}]
        choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
        await respond(app, tools=[COMMAND, AGENTS], tool_choice=choice)
        grammar, prompt = sampling(app).grammar, app.prompt
    assert grammar is not None
    assert '"cmd"' in grammar.text
    assert '"target"' not in grammar.text
    assert "close_agent" in prompt


async def test_a_tool_can_be_called_although_the_answer_has_a_form(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    said = says(call("exec_command", cmd="ls"))
    async with running(tmp_path, said, template=TOOLS_TEMPLATE) as app:
        body = (await respond(app, tools=[COMMAND], text=form)).json()
        grammar = sampling(app).grammar
        await respond(app, tools=[COMMAND], text=form, tool_choice="none")
        answered = sampling(app).grammar
    assert [item["type"] for item in body["output"]] == ["function_call"]
    assert grammar is not None
    assert grammar.text.startswith("start: only_calls | answer")
    assert answered is not None
    assert answered.kind == "json_schema"


async def test_an_answer_in_json_that_is_cut_off_is_still_an_answer(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    settings = {"tool_call_parser": "llama3_json"}
    said = says('{"name": "Ro', finish="length")
    async with running(tmp_path, said, template=TOOLS_TEMPLATE, **settings) as app:
        body = (await respond(app, tools=[COMMAND], text=form)).json()
    assert body["status"] == "incomplete"
    assert body["output"][0]["content"][0]["text"] == '{"name": "Ro'


async def test_calls_of_shells_are_functions_in_the_prompt(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "list"},
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
        {"type": "shell_call", "call_id": "d", "action": {"commands": ["pwd"]}},
        {"type": "shell_call_output", "call_id": "d", "output": [{"stdout": "/"}]},
    ]
    async with running(tmp_path, says("a"), template=TOOLS_TEMPLATE) as app:
        await respond(app, input=items)
        prompt = app.prompt
    assert '"name": "local_shell", "arguments": {"command": ["ls"]}' in prompt
    assert "tool\na.txt" in prompt
    assert 'tool\n[{"stdout": "/"}]' in prompt


# -- reasoning ----------------------------------------------------------------------------------


async def test_reasoning_comes_back_by_its_encrypted_content_alone(tmp_path: Path) -> None:
    template = THOUGHTS + "<think>\n"
    async with running(tmp_path, says("I think so.\n</think>\n\nYes."), template=template) as app:
        body = (await respond(app, include=["reasoning.encrypted_content"])).json()
        thought = body["output"][0]
        assert thought["type"] == "reasoning"
        kept = {key: thought[key] for key in ("type", "id", "summary", "encrypted_content")}
        answer = {"role": "assistant", "content": "Yes."}
        items = [{"role": "user", "content": "a"}, kept, answer, {"role": "user", "content": "b"}]
        await respond(app, input=items)
        prompt = app.prompt
        foreign = kept | {"encrypted_content": "gAAAAABo"}
        await respond(app, input=[{"role": "user", "content": "a"}, foreign, answer])
        plain = (await respond(app)).json()["output"][0]
    assert f"<think>{thought['content'][0]['text']}</think>Yes." in prompt
    assert "encrypted_content" not in plain


# -- what is told, and what fits ----------------------------------------------------------------


async def test_log_probabilities_are_those_of_the_text(tmp_path: Path) -> None:
    wish = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    said = says("Hm.\n</think>\n\nYes, ok. " + call("exec_command", cmd="ls"))
    template = TOOLS_TEMPLATE + "{# </think> #}<think>\n"
    async with running(tmp_path, said, template=template) as app:
        body = (await respond(app, **wish, tools=[COMMAND])).json()
        events = events_of((await respond(app, **wish, tools=[COMMAND], stream=True)).text)
        assert sampling(app).logprobs == 2
        unasked = (await respond(app)).json()
    (part,) = next(i for i in body["output"] if i["type"] == "message")["content"]
    assert b"".join(bytes(one["bytes"]) for one in part["logprobs"]).decode().strip() == "Yes, ok."
    assert all(len(one["top_logprobs"]) == 2 for one in part["logprobs"])
    streamed = [
        one
        for event in events
        if event["type"] == "response.output_text.delta"
        for one in event["logprobs"]
    ]
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert streamed == done["logprobs"]
    assert "".join(one["token"] for one in streamed).strip() == "Yes, ok."
    assert (
        next(i for i in unasked["output"] if i["type"] == "message")["content"][0]["logprobs"] == []
    )


async def test_the_sampling_fields_of_vllm_reach_the_engine(tmp_path: Path) -> None:
    fields = {
        "top_k": 3,
        "min_p": 0.1,
        "seed": 5,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "min_tokens": 2,
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "stop_token_ids": [7],
        "allowed_token_ids": [7, 8, 9],
    }
    async with running(tmp_path, says("a END b")) as app:
        await respond(app, **fields, stop="END", logit_bias={"8": 1.5}, bad_words=["x"])
        asked = sampling(app)
        for name, value in fields.items():
            given = getattr(asked, name)
            assert (list(given) if isinstance(given, tuple) else given) == value
        assert dict(asked.logit_bias) == {8: 1.5}
        assert asked.bad_words_ids
        stopped = (await respond(app, stop=["END"])).json()
    assert stopped["output"][0]["content"][0]["text"] == "a "
    assert stopped["status"] == "completed"


async def test_the_oldest_items_go_when_a_conversation_is_too_long(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": f"number {n} " + "word " * 60} for n in range(30)]
    items = [{"role": "system", "content": "Be kind."}, *turns]
    async with running(tmp_path, says("a")) as app:
        refused = await app.post("/v1/responses", {"input": items})
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        await respond(app, input=items, truncation="auto", max_output_tokens=50)
        prompt = app.prompt
        assert "Be kind." in prompt
        assert "number 29 " in prompt
        assert "number 0 " not in prompt
        more = len(app.engine.requests[-1].prompt_token_ids)
        assert 2048 - 50 - 2 * 100 < more <= 2048 - 50
        one = [{"role": "user", "content": "word " * 3000}]
        hopeless = await app.post("/v1/responses", {"input": one, "truncation": "auto"})
    assert hopeless.json()["error"]["code"] == "context_length_exceeded"
    assert hopeless.json()["error"]["param"] == "input"


async def test_input_tokens_are_those_of_the_prompt(tmp_path: Path) -> None:
    async with running(tmp_path, says("a"), template=TOOLS_TEMPLATE) as app:
        fields = {"input": "hello", "tools": [COMMAND, AGENTS], "instructions": "Be brief."}
        counted = await app.client.responses.input_tokens.count(model="stub", **fields)  # type: ignore[arg-type]  # plain dictionaries
        await respond(app, **fields)
        assert counted.input_tokens == len(app.engine.requests[-1].prompt_token_ids)
        assert counted.object == "response.input_tokens"
        stored = (await respond(app)).json()["id"]
        more = await app.client.responses.input_tokens.count(
            model="stub", input="and", previous_response_id=stored
        )
        long = await app.client.responses.input_tokens.count(model="stub", input="word " * 9000)
    assert more.input_tokens > 5
    assert long.input_tokens > 9000
