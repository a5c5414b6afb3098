"""A stream that another engine continues has the bytes of one that was never broken.

Each stream is cut after each of its notes, and a fresh server is asked for the rest.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.server.scripted import (
    THINKING_TEMPLATE,
    TOOLS_TEMPLATE,
    App,
    Script,
    ids_of,
    running,
    says,
)
from yaie.core.messages import Event, Generate, Tokens
from yaie_api.http.replay import LOST, MARK, Identity, add_words, new_words, note, tail_of
from yaie_api.names import HEADER_REPLAY

CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
HELLO = [{"role": "user", "content": "hello"}]
FIRST = Identity("0123456789abcdef" * 2, 5, 1_700_000_000)
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 17, "b": "so it is"}}\n</tool_call>'
USAGE = {"stream_options": {"include_usage": True}}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "text": (CHAT, {"messages": HELLO} | USAGE, "so it is, as they say", {}),
    "usage in each chunk": (CHAT, {"messages": HELLO} | CONTINUOUS, "so it is", {}),
    "characters of several bytes": (CHAT, {"messages": HELLO}, "日本 😀 é👩‍👩‍👧 ü", {}),
    "a stop string": (CHAT, {"messages": HELLO, "stop": ["they"]}, "so the then they say", {}),
    "log-probabilities": (
        CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "stop": ["xx"]},
        "so x it é is", {},
    ),
    "a call": (CHAT, {"messages": HELLO, "tools": [TOOL]}, f"I add.{CALL}",
               {"template": TOOLS_TEMPLATE, "tool_call_parser": "hermes"}),
    "reasoning": (CHAT, {"messages": HELLO} | CONTINUOUS, "I think so.\n</think>\n\nIt is so.",
                  {"template": THINKING_TEMPLATE, "reasoning_parser": "deepseek_r1"}),
    "reasoning that is not shown": (
        CHAT, {"messages": HELLO, "include_reasoning": False}, "I think.\n</think>\n\nIt is.",
        {"template": THINKING_TEMPLATE, "reasoning_parser": "deepseek_r1"},
    ),
    "token ids": (CHAT, {"messages": HELLO, "return_token_ids": True}, "so é it is", {}),
    "a text": (TEXT, {"prompt": "hello", "max_tokens": 90} | USAGE, "so it is 😀", {}),
    "an echo": (TEXT, {"prompt": "hello", "max_tokens": 90, "echo": True}, "so it is", {}),
    "offsets": (TEXT, {"prompt": "hello", "max_tokens": 90, "logprobs": 2}, "so é it is", {}),
    "a message": (MESSAGES, {"messages": HELLO, "max_tokens": 90}, "so it is 日", {}),
    "a message with a call": (
        MESSAGES,
        {"messages": HELLO, "max_tokens": 90, "tools": [{"name": "add", "input_schema": {}}]},
        f"I add.{CALL}", {"template": TOOLS_TEMPLATE, "tool_call_parser": "hermes"},
    ),
}  # fmt: skip


def same(body: bytes) -> bytes:
    """The body without what differs from answer to answer: the ids of calls."""
    return re.sub(rb'"(call|toolu)_[^"]*"', b'"call"', body)


def pieces(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What stands before each note, and the note's words; the last one has none."""
    rest = body
    while (at := rest.find(b"\n" + MARK) + 1) > 0:
        told, _, after = rest[at + len(MARK) :].partition(b"\n\n")
        yield rest[:at], told
        rest = after
    yield rest, b""


def cached(script: Script) -> Script:
    """Each engine has found another part of the prompt in its cache; the first one's counts."""

    def told(request: Generate) -> Iterator[Event]:
        found = 1 if request.resumed_token_ids else 3
        for event in script(request):
            assert isinstance(event, Tokens)
            yield msgspec.structs.replace(event, cached_tokens=found)

    return told


async def ask(app: App, path: str, body: dict[str, Any], identity: Identity, tail: bytes) -> Any:
    sent = app.http.build_request("POST", f"http://127.0.0.1{path}", json=body)
    return await app.http.post(
        f"http://127.0.0.1{path}",
        content=sent.content + tail,
        headers={"content-type": "application/json", HEADER_REPLAY: identity.header()},
    )


@pytest.mark.parametrize("case", CASES)
async def test_the_rest_follows_without_a_seam(case: str, tmp_path: Path) -> None:
    path, fields, text, settings = CASES[case]
    body = {"model": "stub", "stream": True} | fields
    async with running(tmp_path, cached(says(text)), **settings) as app:
        plain = (await app.post(path, body)).content
        whole = await ask(app, path, body, FIRST, b"")
        found = list(pieces(whole.content))
        shown = b"".join(piece for piece, _ in found)
        assert whole.headers[HEADER_REPLAY] == "1"
        assert len(found) > 3
        assert shown.count(b"\n\n") == plain.count(b"\n\n")
        words = new_words()
        for number in range(len(found) - 1):
            add_words(words, found[number][1])
            tail = tail_of(words)
            again = Identity(FIRST.nonce, FIRST.seed, FIRST.created_s, len(tail))
            answer = await ask(app, path, body, again, tail)
            assert answer.status_code == 200, answer.content
            before = b"".join(piece for piece, _ in found[: number + 1])
            rest = b"".join(piece for piece, _ in pieces(answer.content))
            assert same(before + rest) == same(shown), number


async def test_the_engine_goes_on_from_the_tokens_that_the_client_has(tmp_path: Path) -> None:
    body = {"model": "stub", "stream": True, "messages": HELLO, "temperature": 1.0}
    tail = tail_of(words_of(ids_of("so it")))
    again = Identity(FIRST.nonce, 77, FIRST.created_s, len(tail))
    async with running(tmp_path, says("so it is")) as app:
        await ask(app, CHAT, body, again, tail)
        (request,) = app.engine.requests
    assert request.resumed_token_ids == tuple(ids_of("so it"))
    assert request.sampling.seed == 77


def words_of(ids: list[int]) -> Any:
    words = new_words()
    add_words(words, note(ids).removeprefix(MARK))
    return words


@pytest.mark.parametrize(
    "fields",
    [{"stream": False}, {"n": 2, "temperature": 1.0}, {"seed": 4}],
)
async def test_what_cannot_be_continued_has_no_notes(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    body = {"model": "stub", "stream": True, "messages": HELLO} | fields
    async with running(tmp_path, says("so", "it")) as app:
        answer = await ask(app, CHAT, body, FIRST, b"")
        seed = app.engine.requests[0].sampling.seed
        refused = await ask(
            app, CHAT, body, Identity(FIRST.nonce, 5, 1, 4), tail_of(words_of([40]))
        )
    if "seed" in fields:
        assert seed == 4  # the client's own draws
        assert MARK in answer.content
    else:
        assert HEADER_REPLAY not in answer.headers
        assert MARK not in answer.content
        assert refused.status_code == 400


@pytest.mark.parametrize("path", ["/v1/responses"])
async def test_a_stored_response_stays_with_its_engine(path: str, tmp_path: Path) -> None:
    async with running(tmp_path, says("so it is")) as app:
        answer = await ask(
            app, path, {"model": "stub", "stream": True, "input": "hello"}, FIRST, b""
        )
    assert HEADER_REPLAY not in answer.headers
    assert MARK not in answer.content


@pytest.mark.parametrize(
    "header",
    ["1", "{}", FIRST.header()[:-3], FIRST.header().replace("0123", 'x"', 1),
     Identity(FIRST.nonce, 5, 1, 3).header(), Identity("short", 5, 1).header()],
)  # fmt: skip
async def test_a_wrong_header_is_refused(header: str, tmp_path: Path) -> None:
    body = {"model": "stub", "stream": True, "messages": HELLO}
    async with running(tmp_path, says("so")) as app:
        answer = await app.post(CHAT, body, **{HEADER_REPLAY: header})
    assert answer.status_code == 400


async def test_a_failure_in_mid_stream_comes_after_all_that_was_written(tmp_path: Path) -> None:
    body = {"model": "stub", "stream": True, "messages": HELLO}
    async with running(tmp_path, says("so it", finish="error")) as app:
        answer = await ask(app, CHAT, body, FIRST, b"")
    shown = b"".join(piece for piece, _ in pieces(answer.content))
    assert b'"error"' in shown
    assert shown.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", [CHAT, TEXT, MESSAGES])
async def test_an_engine_process_that_dies_leaves_a_mark(path: str, tmp_path: Path) -> None:
    fields = {"prompt": "hello"} if path == TEXT else {"messages": HELLO}
    body = {"model": "stub", "stream": True, "max_tokens": 90} | fields
    async with running(tmp_path, says("so it", finish="abort")) as app:
        noted = await ask(app, path, body, FIRST, b"")
        plain = await app.post(path, body)
    *_, (tail, _) = pieces(noted.content)
    assert tail.startswith(LOST)
    assert b"error" in tail
    assert LOST not in plain.content


def chunky(text: str) -> Script:
    """Says a text in messages of one, two, three ... tokens."""

    def script(request: Generate) -> Iterator[Event]:
        ids, size = ids_of(text)[len(request.resumed_token_ids) :], 1
        while ids:
            yield Tokens(request.request_id, tuple(ids[:size]))
            ids, size = ids[size:], size + 1
        yield Tokens(request.request_id, (), "stop")

    return script


async def test_it_does_not_matter_how_tokens_came(tmp_path: Path) -> None:
    body = {"model": "stub", "stream": True, "messages": HELLO, "stop": ["zz"]}
    async with running(tmp_path, chunky("so z 日本 it is, z they say")) as app:
        found = list(pieces((await ask(app, CHAT, body, FIRST, b"")).content))
        shown = b"".join(piece for piece, _ in found)
        words = new_words()
        for number in range(len(found) - 1):
            add_words(words, found[number][1])
            tail = tail_of(words)
            again = Identity(FIRST.nonce, 5, FIRST.created_s, len(tail))
            answer = await ask(app, CHAT, body, again, tail)
            before = b"".join(piece for piece, _ in found[: number + 1])
            rest = b"".join(piece for piece, _ in pieces(answer.content))
            assert text_of(before + rest) == text_of(shown)


def text_of(body: bytes) -> str:
    return "".join(re.findall(r'"content":"([^"]*)"', body.decode()))
