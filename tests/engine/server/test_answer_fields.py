"""An answer has every field that vLLM's has, as null where it has nothing to say: clients that were
written for vLLM read them without asking. The lists are those of vLLM 0.22.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import App, running, says

USER: Any = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"

OF_CHAT = {
    "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage",
    "prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params",
}  # fmt: skip
OF_CHAT_CHOICE = {
    "index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts",
}  # fmt: skip
OF_MESSAGE = {
    "role", "content", "refusal", "annotations", "audio", "function_call", "tool_calls",
    "reasoning",
}  # fmt: skip
OF_TEXT = {
    "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage",
    "kv_transfer_params",
}  # fmt: skip
OF_TEXT_CHOICE = {
    "index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs",
    "prompt_token_ids", "routed_experts",
}  # fmt: skip
OF_CHUNK = {"id", "object", "created", "model", "choices"}
OF_FIRST_CHUNK = OF_CHUNK | {"prompt_token_ids", "prompt_text"}
OF_CHAT_DELTA = {"index", "delta", "logprobs", "finish_reason"}
OF_TEXT_DELTA = {
    "index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids",
}  # fmt: skip


async def whole(app: App, path: str, **fields: Any) -> Any:
    given = {"messages": USER} if path == CHAT else {"prompt": "hello"}
    answer = await app.post(path, given | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events(app: App, path: str, **fields: Any) -> list[Any]:
    given = {"messages": USER} if path == CHAT else {"prompt": "hello"}
    answer = await app.post(path, given | {"stream": True} | fields)
    return [json.loads(event[6:]) for event in answer.text.split("\n\n")[:-2]]


def absent(found: dict[str, Any]) -> set[str]:
    return {name for name, value in found.items() if value is None}


async def test_a_chat_has_every_field_and_nulls_where_there_is_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        found = await whole(app, CHAT)
    choice = found["choices"][0]
    assert set(found) == OF_CHAT
    assert set(choice) == OF_CHAT_CHOICE
    assert set(choice["message"]) == OF_MESSAGE | {"reasoning_content"}
    assert absent(found) == OF_CHAT - {"id", "object", "created", "model", "choices", "usage"}
    assert absent(choice) == OF_CHAT_CHOICE - {"index", "message", "finish_reason"}
    message = choice["message"]
    assert absent(message) == OF_MESSAGE - {"role", "content"} | {"reasoning_content"}


async def test_a_text_completion_has_every_field_too(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        found = await whole(app, TEXT)
    assert set(found) == OF_TEXT
    assert set(found["choices"][0]) == OF_TEXT_CHOICE
    assert absent(found["choices"][0]) == OF_TEXT_CHOICE - {"index", "text", "finish_reason"}


async def test_what_is_asked_for_stands_where_the_null_was(tmp_path: Path) -> None:
    asked = {"return_token_ids": True, "prompt_logprobs": 0}
    async with running(tmp_path, says("<think>why</think>hi"), reasoning_parser="qwen3") as app:
        chat = await whole(app, CHAT, return_prompt_text=True, **asked)
        text = (await whole(app, TEXT, **asked))["choices"][0]
        assert chat["prompt_text"] == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    for name in ("prompt_logprobs", "prompt_token_ids"):
        assert chat[name]
        assert text[name]
    assert chat["choices"][0]["token_ids"] == text["token_ids"]
    assert chat["choices"][0]["message"]["reasoning"] == "why"


async def test_chunks_of_a_chat_have_vllm_s_fields(tmp_path: Path) -> None:
    async with running(tmp_path, says("one two")) as app:
        first, *others = await events(app, CHAT)
    assert set(first) == OF_FIRST_CHUNK
    assert (first["prompt_token_ids"], first["prompt_text"]) == (None, None)
    assert all(set(event) == OF_CHUNK for event in others)
    *texts, last = [event["choices"][0] for event in others]
    assert all(set(choice) == OF_CHAT_DELTA | {"token_ids"} for choice in texts)
    assert set(last) == OF_CHAT_DELTA | {"token_ids", "stop_reason"}
    assert absent(last) == {"logprobs", "token_ids", "stop_reason"}


async def test_chunks_of_a_text_completion_have_vllm_s_fields(tmp_path: Path) -> None:
    async with running(tmp_path, says("one two")) as app:
        found = await events(app, TEXT)
        with_ids = await events(app, TEXT, return_token_ids=True)
    assert all(set(event) == OF_CHUNK for event in found)
    assert all(set(event["choices"][0]) == OF_TEXT_DELTA for event in found + with_ids)


async def test_the_first_chunk_tells_the_prompt_s_text_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, says("hi")) as app:
        first, *others = await events(app, CHAT, return_prompt_text=True)
        assert first["prompt_text"] == app.prompt
    assert not any("prompt_text" in event for event in others)


@pytest.mark.parametrize("echo", [False, True])
async def test_continuous_usage_begins_with_the_first_chunk(tmp_path: Path, echo: bool) -> None:
    """It counts the prompt: no token is there yet."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    messages = [*USER, {"role": "assistant", "content": "So"}]
    async with running(tmp_path, says("one two", "three")) as app:
        found = await events(app, CHAT, stream_options=options, echo=echo, messages=messages, n=2)
        prompt = len(app.engine.requests[0].prompt_token_ids)
    usages = [event["usage"] for event in found]
    begun = usages[: 4 if echo else 2]
    assert [one["completion_tokens"] for one in begun] == [0] * len(begun)
    assert {one["prompt_tokens"] for one in usages} == {prompt}
    assert usages[-1]["completion_tokens"] > 0


async def test_a_message_with_its_nulls_can_be_sent_back(tmp_path: Path) -> None:
    """As the next turn's history, as clients do that keep what they got."""
    async with running(tmp_path, says("hi")) as app:
        message = (await whole(app, CHAT))["choices"][0]["message"]
        await whole(app, CHAT, messages=[*USER, message, *USER])
        with_nulls = app.prompt
        bare = {"role": "assistant", "content": "hi"}
        await whole(app, CHAT, messages=[*USER, bare, *USER])
        assert app.prompt == with_nulls


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_every_token_s_logprob_is_told_where_the_server_allows_all(
    tmp_path: Path, path: str
) -> None:
    asked = {"logprobs": True, "top_logprobs": -1} if path == CHAT else {"logprobs": -1}
    async with running(tmp_path, says("hi"), info={"max_logprobs": -1}) as app:
        await whole(app, path, **asked)
        assert app.engine.requests[0].sampling.logprobs == -1
