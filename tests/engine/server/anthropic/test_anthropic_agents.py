"""What agents need of Anthropic's messages, over an engine that says what is written down."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import THINKING_TEMPLATE, TOOLS_TEMPLATE, App, ids_of, running, says
from yaie.core.messages import Event, Generate, Tokens
from yaie.server.anthropic.context_edits import CLEARED

USER = [{"role": "user", "content": "hello"}]
TOOL = {"name": "read", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


async def ask(app: App, path: str = "/v1/messages", **fields: Any) -> Any:
    answer = await app.post(path, {"messages": USER, "max_tokens": 20} | fields)
    assert answer.status_code == 200, answer.text
    return answer


def last_events(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def reading(count: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [*USER]
    for n in range(count):
        use = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"{n}.txt"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"file {n} " * 20}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return turns


# -- context management -------------------------------------------------------------------------


async def test_old_results_are_cleared_from_the_prompt_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 100}}
    wish = {"messages": reading(5), "tools": [TOOL], "context_management": {"edits": [edit]}}
    async with running(tmp_path, says("ok"), template=TOOLS_TEMPLATE) as app:
        whole = (await ask(app, **wish)).json()
        prompt, size = app.prompt, len(app.engine.requests[-1].prompt_token_ids)
        events = last_events((await ask(app, **wish, stream=True)).text)
        counted = (await ask(app, "/v1/messages/count_tokens", **wish)).json()
        uncut = await ask(app, "/v1/messages/count_tokens", **wish | {"context_management": None})
    assert prompt.count(CLEARED) == 2
    assert "file 1 " not in prompt
    assert "file 2 " in prompt
    (applied,) = whole["context_management"]["applied_edits"]
    assert (applied["type"], applied["cleared_tool_uses"]) == (edit["type"], 2)
    before = uncut.json()["input_tokens"]
    assert applied["cleared_input_tokens"] == before - size > 0
    (end,) = [event for event in events if event["type"] == "message_delta"]
    assert end["context_management"] == whole["context_management"]
    assert counted == {
        "input_tokens": size,
        "context_management": {"original_input_tokens": before},
    }


async def test_an_edit_that_takes_too_little_out_is_not_applied(tmp_path: Path) -> None:
    trigger = {"type": "tool_uses", "value": 1}
    least = {"type": "input_tokens", "value": 5000}
    edits = [
        {"type": "clear_tool_uses_20250919", "trigger": trigger, "clear_at_least": least},
        {"type": "clear_thinking_20251015", "keep": "all"},
    ]
    async with running(tmp_path, says("ok"), template=TOOLS_TEMPLATE) as app:
        wish = {"messages": reading(5), "context_management": {"edits": edits}}
        answer = (await ask(app, **wish)).json()
        assert CLEARED not in app.prompt
        plain = (await ask(app)).json()
    assert answer["context_management"] == {"applied_edits": []}
    assert "context_management" not in plain


async def test_old_thinking_is_cleared(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    turns = []
    for words in ("one", "two"):
        answer = {"role": "assistant", "content": [thought, {"type": "text", "text": words}]}
        turns += [*USER, answer]
    wish = {"messages": [*turns, *USER]}
    edits = {"edits": [{"type": "clear_thinking_20251015"}]}
    async with running(tmp_path, says("ok")) as app:
        answer = (await ask(app, **wish, context_management=edits)).json()
    (applied,) = answer["context_management"]["applied_edits"]
    assert applied["cleared_thinking_turns"] == 1


# -- what is left out, what is told -------------------------------------------------------------


async def test_tools_and_fields_of_anthropic_s_own_are_left_out_and_named(tmp_path: Path) -> None:
    searched = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "dogs"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "Dogs bark."},
    ]
    turns = [*USER, {"role": "assistant", "content": searched}, *USER]
    async with running(tmp_path, says("ok"), template=TOOLS_TEMPLATE) as app:
        wish = {"messages": turns, "tools": [SEARCH, TOOL, {"type": "mcp_toolset"}]}
        answer = await ask(app, **wish, inference_geo="eu", service_tier="auto")
        streamed = await ask(app, **wish, inference_geo="eu", stream=True)
        prompt = app.prompt
    assert answer.headers["warning"] == streamed.headers["warning"]
    assert answer.headers["warning"] == (
        '299 - "This server left out: tools of type web_search_20250305, tools of type '
        "mcp_toolset, blocks of type server_tool_use, blocks of type web_search_tool_result, "
        'inference_geo"'
    )
    assert prompt.count("<tool>") == 1
    assert "Dogs bark." in prompt


async def test_the_request_s_id_is_where_anthropic_s_clients_look(tmp_path: Path) -> None:
    async with running(tmp_path, says("ok")) as app:
        for path, body in (("/v1/messages", {}), ("/v1/messages/count_tokens", {})):
            answer = await app.post(path, {"messages": USER, "max_tokens": 3} | body)
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
        wrong = await app.post("/v1/messages", {})
        chat = await app.post("/v1/chat/completions", {"messages": USER})
    assert wrong.json()["request_id"] == wrong.headers["request-id"]
    assert "request-id" not in chat.headers


async def test_template_variables_go_before_those_of_thinking(tmp_path: Path) -> None:
    async with running(tmp_path, says("ok"), template=THINKING_TEMPLATE) as app:
        await ask(app, thinking={"type": "enabled", "budget_tokens": 1024})
        assert app.prompt.endswith("<think>\n")
        await ask(app, chat_template_kwargs={"enable_thinking": False})
        assert not app.prompt.endswith("<think>\n")
        kwargs = {"enable_thinking": False}
        await ask(app, thinking={"type": "adaptive"}, chat_template_kwargs=kwargs)
        assert not app.prompt.endswith("<think>\n")


async def test_a_stop_sequence_is_told_exactly(tmp_path: Path) -> None:
    async with running(tmp_path, says("one END two STOP three")) as app:
        whole = (await ask(app, stop_sequences=["STOP", "END"])).json()
        events = last_events((await ask(app, stop_sequences=["STOP"], stream=True)).text)
        none = (await ask(app, stop_sequences=["never"])).json()
    assert whole["content"][0]["text"] == "one "
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "END")
    (end,) = [event for event in events if event["type"] == "message_delta"]
    assert end["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}
    assert (none["stop_reason"], none["stop_sequence"]) == ("end_turn", None)


async def test_usage_tells_what_was_read_from_the_cache_and_with_a_mark_what_was_written(
    tmp_path: Path,
) -> None:
    def script(request: Generate) -> list[Event]:
        ids = tuple(ids_of("ok"))
        return [
            Tokens(request.request_id, ids, cached_tokens=32),
            Tokens(request.request_id, (), "stop"),
        ]

    words = "word " * 40
    plain = [{"role": "user", "content": words}]
    marked = [{"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}]
    async with running(tmp_path, script) as app:
        without = (await ask(app, messages=plain)).json()["usage"]
        size = len(app.engine.requests[-1].prompt_token_ids)
        wish = {"messages": [{"role": "user", "content": marked}]}
        with_mark = (await ask(app, **wish)).json()["usage"]
        automatic = (await ask(app, messages=plain, cache_control={"type": "ephemeral"})).json()
    kept = size // 16 * 16 - 32
    assert (without["input_tokens"], without["cache_creation_input_tokens"]) == (size - 32, 0)
    assert with_mark["cache_read_input_tokens"] == 32
    assert with_mark["cache_creation_input_tokens"] == kept > 0
    assert with_mark["input_tokens"] == size - 32 - kept
    assert with_mark["cache_creation"]["ephemeral_5m_input_tokens"] == kept
    assert automatic["usage"] == with_mark


@pytest.mark.parametrize(
    ("words", "most", "message"),
    [
        (100, 3000, r"input length and `max_tokens` exceed context limit: \d+ \+ 3000 > 2048"),
        (9000, 20, r"prompt is too long: \d+ tokens > 2048 maximum$"),
    ],
)
async def test_what_is_too_long_is_told_in_the_words_that_agents_look_for(
    tmp_path: Path, words: int, most: int, message: str
) -> None:
    async with running(tmp_path, says("ok")) as app:
        long = [{"role": "user", "content": "word " * words}]
        answer = await app.post("/v1/messages", {"messages": long, "max_tokens": most})
    assert answer.status_code == 400
    assert re.match(message, answer.json()["error"]["message"])


async def test_a_thread_is_refused_so_that_clients_send_the_whole_conversation(
    tmp_path: Path,
) -> None:
    """The official client's runner of tools begins one unasked, and goes on with the news only."""
    async with running(tmp_path, says("ok")) as app:
        body = {"messages": USER, "max_tokens": 3, "thread": {"type": "create"}}
        answer = await app.post("/v1/messages", body)
    assert answer.status_code == 400
    details = answer.json()["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


async def test_a_tool_that_a_search_found_is_told_to_be_there(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "ToolSearch", "input": {}}
    found = [{"type": "tool_reference", "tool_name": "read"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": found}
    turns = [*USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    async with running(tmp_path, says("ok"), template=TOOLS_TEMPLATE) as app:
        await ask(app, messages=turns, tools=[TOOL | {"defer_loading": True}])
        assert "The tool read is available." in app.prompt


async def test_tokens_are_counted_however_many_there_are(tmp_path: Path) -> None:
    async with running(tmp_path, says("ok")) as app:
        long = [{"role": "user", "content": "word " * 9000}]
        counted = (await ask(app, "/v1/messages/count_tokens", messages=long)).json()
    assert counted["input_tokens"] > 9000
