"""The kinds of request that a soak sends, and what a complete answer of each looks like."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODEL = "demo"
QUESTIONS = (
    "What is a dog?",
    "What is Kubernetes?",
    "Tell me about rain.",
    "Who are you?",
    "7 + 5",
)
SHARED = "You are the demo model of yaie. " * 12
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "maxLength": 24}},
            "required": ["location"],
        },
    },
}


@dataclass(frozen=True)
class Wish:
    """One request. `complete(body)` raises AssertionError unless the whole answer is as it must."""

    kind: str
    path: str
    body: dict[str, Any]
    complete: Callable[[bytes], None]
    status: int = 200


def wish(rng: random.Random) -> Wish:
    """A random request of a random kind."""
    return rng.choice(_KINDS)(rng)


def _chat(rng: random.Random, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": rng.choice(QUESTIONS)}]
    if rng.random() < 0.5:
        messages.insert(0, {"role": "system", "content": SHARED})
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": rng.randint(1, 48),
        "temperature": rng.choice((0, 0.7, 1.3)),
    } | more


def _chat_stream(rng: random.Random) -> Wish:
    choices = rng.choice((1, 1, 3))
    more = {"n": choices, "temperature": 0.9} if choices > 1 else {}
    body = _chat(rng, stream=True, stream_options={"include_usage": True}, **more)
    return Wish("chat stream", "/v1/chat/completions", body, _ended_stream(choices))


def _chat_whole(rng: random.Random) -> Wish:
    penalties = {"presence_penalty": 0.5, "logit_bias": {"5": -10}, "logprobs": True}
    body = _chat(rng, **(penalties if rng.random() < 0.5 else {}))
    return Wish("chat", "/v1/chat/completions", body, _choices(1))


def _completion_stream(rng: random.Random) -> Wish:
    body = {"model": MODEL, "prompt": ["A dog is", "A cat is"], "max_tokens": 20, "stream": True}
    body |= {"stop": [" is", "."], "seed": rng.randint(0, 9)}
    return Wish("completions stream", "/v1/completions", body, _ended_stream(2))


def _scored(_: random.Random) -> Wish:
    body = {"model": MODEL, "prompt": list(range(40, 90)), "max_tokens": 1, "echo": True}
    return Wish("echo", "/v1/completions", body | {"logprobs": 2}, _choices(1))


def _schema(rng: random.Random) -> Wish:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}

    def complete(answer: bytes) -> None:
        choice = json.loads(answer)["choices"][0]
        assert choice["finish_reason"] == "stop", choice
        assert set(json.loads(choice["message"]["content"])) == {"name", "age"}

    body = _chat(rng, response_format=wanted, max_tokens=400)
    return Wish("json schema", "/v1/chat/completions", body, complete)


def _tools(rng: random.Random) -> Wish:
    def complete(answer: bytes) -> None:
        choice = json.loads(answer)["choices"][0]
        calls = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert all(json.loads(call["function"]["arguments"]) for call in calls)

    body = _chat(rng, tools=[TOOL], tool_choice="required", max_tokens=600)
    body["parallel_tool_calls"] = False
    return Wish("tools", "/v1/chat/completions", body, complete)


def _embedding(_: random.Random) -> Wish:
    def complete(answer: bytes) -> None:
        assert len(json.loads(answer)["data"]) == 3

    body = {"model": MODEL, "input": ["a dog", "a cat", SHARED]}
    return Wish("embeddings", "/v1/embeddings", body, complete)


def _long_prompt(rng: random.Random) -> Wish:
    prompt = [rng.randint(5, 4000) for _ in range(rng.randint(200, 1500))]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "ignore_eos": True}
    return Wish("long prompt", "/v1/completions", body, _choices(1))


def _response(rng: random.Random) -> Wish:
    def complete(answer: bytes) -> None:
        assert answer.count(b"event: response.created") == 1
        ends = (b"event: response.completed", b"event: response.incomplete")
        assert sum(answer.count(end) for end in ends) == 1

    body = {"model": MODEL, "input": rng.choice(QUESTIONS), "max_output_tokens": 24, "stream": True}
    return Wish("responses stream", "/v1/responses", body, complete)


def _message(rng: random.Random) -> Wish:
    def complete(answer: bytes) -> None:
        assert answer.count(b"event: message_start") == 1
        assert answer.count(b"event: message_stop") == 1

    body = _chat(rng, stream=True, temperature=0.5)
    body["messages"] = body["messages"][-1:]
    return Wish("messages stream", "/v1/messages", body, complete)


def _wrong(rng: random.Random) -> Wish:
    def complete(answer: bytes) -> None:
        assert json.loads(answer)["error"]["message"]

    wrong = rng.choice(({"temperature": -1}, {"messages": []}, {"response_format": {"type": "x"}}))
    return Wish("bad request", "/v1/chat/completions", _chat(rng) | wrong, complete, status=400)


def _choices(count: int) -> Callable[[bytes], None]:
    def complete(answer: bytes) -> None:
        choices = json.loads(answer)["choices"]
        assert len(choices) == count
        assert all(choice["finish_reason"] in ("stop", "length") for choice in choices)

    return complete


def _ended_stream(choices: int) -> Callable[[bytes], None]:
    """Each choice ends once, nothing follows its end, and [DONE] stands at the end, once."""

    def complete(answer: bytes) -> None:
        events = [event for event in answer.split(b"\n\n") if event and not event.startswith(b":")]
        assert events[-1] == b"data: [DONE]", events[-1][:200]
        ended: set[int] = set()
        for event in events[:-1]:
            chunk = json.loads(event.removeprefix(b"data: "))
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                assert choice["index"] not in ended
                if choice["finish_reason"] is not None:
                    ended.add(choice["index"])
        assert ended == set(range(choices))

    return complete


_KINDS = (
    _chat_stream, _chat_stream, _chat_whole, _completion_stream, _scored, _schema, _tools,
    _embedding, _long_prompt, _response, _message, _wrong,
)  # fmt: skip
