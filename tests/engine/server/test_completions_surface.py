"""Text completions as clients and evaluation harnesses see them, over a scripted engine."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import App, ids_of, logprob_of, running, says
from yaie.core.messages import Abort, Event, Generate, Tokens

PATH = "/v1/completions"


async def ask(app: App, **fields: Any) -> Any:
    answer = await app.post(PATH, fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events_of(app: App, **fields: Any) -> list[Any]:
    text = (await app.post(PATH, fields | {"stream": True})).text
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]


def together(events: list[Any], index: int, field: str) -> Any:
    """One field of a streamed choice's logprobs, put together."""
    parts = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
    return [one for part in parts if part["logprobs"] for one in part["logprobs"][field]]


def computes(request: Generate) -> Iterable[Event]:
    """As an engine with max_tokens 0: the prompt's numbers, no token."""
    count = request.sampling.prompt_logprobs
    prompt = request.prompt_token_ids
    entries = None if count is None else tuple(logprob_of(i, count) for i in prompt[1:])
    yield Tokens(request.request_id, (), "length", prompt_logprobs=entries)


async def test_prompts_times_outputs_are_counted_through(tmp_path: Path) -> None:
    async with running(tmp_path, says("one", "two")) as app:
        whole = await ask(app, prompt=["a", "b", "c"], n=2)
        assert [r.sampling.n for r in app.engine.requests] == [2, 2, 2]
        events = await events_of(app, prompt=["a", "b", "c"], n=2)
    assert [c["index"] for c in whole["choices"]] == list(range(6))
    assert [c["text"] for c in whole["choices"]] == ["one", "two"] * 3
    texts = [""] * 6
    for event in events:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == ["one", "two"] * 3
    assert whole["usage"]["prompt_tokens"] == 3


async def test_logprobs_have_offsets_into_the_text(tmp_path: Path) -> None:
    text = "the fox, Köln"
    async with running(tmp_path, says(text)) as app:
        whole = await ask(app, prompt="a", logprobs=2)
        events = await events_of(app, prompt="a", logprobs=2)
    found = whole["choices"][0]["logprobs"]
    assert found["token_logprobs"] == [-0.5] * len(ids_of(text))
    assert all(len(top) == 2 for top in found["top_logprobs"])
    for token, offset in zip(found["tokens"], found["text_offset"], strict=True):
        assert "\ufffd" in token or text[offset:].startswith(token) or offset > text.index("ö")
    for field, values in found.items():
        assert together(events, 0, field) == values


async def test_logprobs_of_zero_tell_the_chosen_token_only(tmp_path: Path) -> None:
    async with running(tmp_path, says("the")) as app:
        whole = await ask(app, prompt="a", logprobs=0)
    found = whole["choices"][0]["logprobs"]
    assert found["top_logprobs"] == [{token: -0.5} for token in found["tokens"]]


async def test_an_echoed_prompt_of_ids_can_be_scored(tmp_path: Path) -> None:
    """What evaluation harnesses ask for: nothing is generated, every token but the first counts."""
    prompts = [ids_of("hello there"), ids_of("stop")]
    fields = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 0}
    async with running(tmp_path, computes) as app:
        whole = await ask(app, **fields)
        assert [r.sampling.prompt_logprobs for r in app.engine.requests] == [1, 1]
        assert [r.sampling.max_tokens for r in app.engine.requests] == [0, 0]
        events = await events_of(app, **fields)
    for choice, ids, text in zip(whole["choices"], prompts, ["hello there", "stop"], strict=True):
        found = choice["logprobs"]
        assert choice["text"] == "".join(found["tokens"]) == text
        assert found["token_logprobs"] == [None] + [-0.5] * (len(ids) - 1)
        assert found["top_logprobs"][0] is None
        assert [text[offset:][: len(token)] for token, offset in zip(
            found["tokens"], found["text_offset"], strict=True
        )] == found["tokens"]  # fmt: skip
        assert choice["finish_reason"] == "length"
        for field, values in found.items():
            assert together(events, choice["index"], field) == values
    assert whole["usage"]["completion_tokens"] == 0


async def test_an_echo_comes_before_the_text_and_its_numbers_before_those_of_the_text(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, says(" there")) as app:
        fields = {"prompt": "hello", "echo": True, "logprobs": 1, "max_tokens": 20}
        whole = await ask(app, **fields)
        events = await events_of(app, **fields)
        plain = await events_of(app, prompt="hello", echo=True)
    choice = whole["choices"][0]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == "hello there"
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert len(choice["logprobs"]["tokens"]) == len(ids_of("hello")) + len(ids_of(" there"))
    for found in (events, plain):
        assert "".join(event["choices"][0]["text"] for event in found) == "hello there"
    assert together(events, 0, "text_offset") == choice["logprobs"]["text_offset"]
    assert all(event["choices"][0]["logprobs"] is None for event in plain)


async def test_several_outputs_each_echo_the_prompt(tmp_path: Path) -> None:
    async with running(tmp_path, says(" a", " b")) as app:
        whole = await ask(app, prompt="hello", echo=True, n=2)
    assert [choice["text"] for choice in whole["choices"]] == ["hello a", "hello b"]


async def test_a_stop_token_is_among_the_numbers_though_not_in_the_text(tmp_path: Path) -> None:
    def script(request: Generate) -> Iterable[Event]:
        entry = logprob_of(0, request.sampling.logprobs or 0)
        yield Tokens(request.request_id, (0,), "stop", 0, logprobs=(entry,))

    async with running(tmp_path, script) as app:
        whole = await ask(app, prompt="hello", logprobs=1)
    assert whole["choices"][0]["text"] == ""
    assert whole["choices"][0]["logprobs"]["tokens"] == ["<|endoftext|>"]


async def test_prompt_logprobs_are_a_field_of_the_choice(tmp_path: Path) -> None:
    async with running(tmp_path, computes) as app:
        whole = await ask(app, prompt=ids_of("stop and"), prompt_logprobs=0, max_tokens=0)
    found = whole["choices"][0]["prompt_logprobs"]
    assert found[0] is None
    assert [len(entry) for entry in found[1:]] == [1] * (len(ids_of("stop and")) - 1)
    assert whole["choices"][0]["text"] == ""


async def test_token_ids_come_with_each_choice(tmp_path: Path) -> None:
    async with running(tmp_path, says("hi")) as app:
        whole = await ask(app, prompt=["a", "stop"], return_token_ids=True)
        events = await events_of(app, prompt="stop", return_token_ids=True)
    assert [c["prompt_token_ids"] for c in whole["choices"]] == [ids_of("a"), ids_of("stop")]
    assert [c["token_ids"] for c in whole["choices"]] == [ids_of("hi")] * 2
    choices = [event["choices"][0] for event in events]
    assert choices[0]["prompt_token_ids"] == ids_of("stop")
    assert all(choice["prompt_token_ids"] is None for choice in choices[1:])
    assert [i for choice in choices for i in choice["token_ids"]] == ids_of("hi")


async def test_an_error_of_one_prompt_ends_the_others(tmp_path: Path) -> None:
    def script(request: Generate) -> Iterable[Event]:
        if request.prompt_token_ids == tuple(ids_of("b")):
            yield Tokens(request.request_id, (), "error", error="bad")
        else:
            yield Tokens(request.request_id, tuple(ids_of("x")))

    async with running(tmp_path, script) as app:
        answer = await app.post(PATH, {"prompt": ["a", "b"]})
        assert answer.status_code == 500
        assert app.engine.aborts == [Abort(app.engine.requests[0].request_id)]


async def test_a_form_holds_for_text_completions_too(tmp_path: Path) -> None:
    async with running(tmp_path, says("aa")) as app:
        await ask(app, prompt="x", structured_outputs={"regex": "a+"})
        assert app.engine.requests[0].sampling.grammar is not None


@pytest.mark.parametrize("prompt", ["word " * 60_000, ["word " * 60_000]])
async def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(
    tmp_path: Path, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, says("x")) as app:
        monkeypatch.setattr(app.service.tokenizer, "encode", None)
        answer = await app.post(PATH, {"prompt": prompt})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].startswith("This model's maximum context length is 2048 tokens.")
    assert (error["param"], "at least" in error["message"]) == ("prompt", True)


async def test_a_long_text_is_fine_where_its_beginning_may_go(tmp_path: Path) -> None:
    async with running(tmp_path, says("x")) as app:
        await ask(app, prompt="word " * 60_000, truncate_prompt_tokens=7)
        assert len(app.engine.requests[0].prompt_token_ids) == 7
        for side in ("left", "right"):
            await ask(app, prompt=[1, 2, 3], truncate_prompt_tokens=2, truncation_side=side)
        left, right = (request.prompt_token_ids for request in app.engine.requests[1:])
        assert (left, right) == ((2, 3), (1, 2))
        refused = await app.post(PATH, {"prompt": "x", "truncate_prompt_tokens": 2048})
    assert refused.json()["error"]["param"] == "truncate_prompt_tokens"
