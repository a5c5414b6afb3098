"""Batch files: lines in, lines out, in order, whatever is in them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from engine.server.running import STUB
from engine.text_vocabularies import write_model_folder
from yaie.server.batch.lines import ATTEMPTS, MAX_DEATHS, Batch, Result, parse_line
from yaie.server.batch.run import run_file
from yaie.server.run import ServeOptions
from yaie_api.errors import InvalidRequestError, UnavailableError


def line(custom_id: str, url: str = "/v1/completions", **body: Any) -> str:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


class FakeApp:
    """Answers with the request's body; `refusals` 429s first; `delay_s` of the body before."""

    def __init__(self, refusals: int = 0, code: str = "queue_full") -> None:
        self.refusals = refusals
        self.code = code
        self.running = self.most = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads((await receive())["body"])
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(body.get("delay_s", 0.0))
        self.running -= 1
        status = 429 if self.refusals > 0 else 200
        self.refusals -= 1
        headers = [(b"x-request-id", b"id-1"), (b"retry-after", b"7")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        answer = {"error": {"code": self.code}} if status == 429 else {"usage": {}}
        content = json.dumps(body | answer, separators=(",", ":")).encode()
        await send({"type": "http.response.body", "body": content})


async def run(app: FakeApp, lines: list[str], **options: Any) -> list[dict[str, Any]]:
    written: list[Result] = []
    await Batch(app, **options).run(lines, written.append)
    return [json.loads(result.line) for result in written]


async def test_answers_come_in_the_order_of_the_lines_and_some_at_once() -> None:
    app = FakeApp()
    lines = [line(str(i), delay_s=0.001 * (20 - i)) for i in range(20)]
    found = await run(app, lines, concurrency=4)
    assert [one["custom_id"] for one in found] == [str(i) for i in range(20)]
    assert app.most == 4
    assert found[0]["response"]["status_code"] == 200
    assert found[0]["response"]["request_id"] == "id-1"
    assert found[0]["error"] is None


async def test_what_is_refused_for_want_of_room_is_tried_again() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    (found,) = await run(FakeApp(refusals=3), [line("a")], wait=wait)
    assert found["response"]["status_code"] == 200
    assert waits == [7.0] * 3
    (found,) = await run(FakeApp(refusals=10**6), [line("a")], wait=wait)
    assert found["response"]["status_code"] == 429
    assert len(waits) == 3 + ATTEMPTS


async def test_what_may_have_killed_the_engine_is_tried_once_more_only() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    await run(FakeApp(refusals=10**6, code="engine_died"), [line("a")], wait=wait)
    assert len(waits) == MAX_DEATHS


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("{", None),
        ("[1]", None),
        ('{"url": "/v1/completions", "body": {}}', "custom_id"),
        ('{"custom_id": "a", "url": "/livez", "body": {}}', "url"),
        ('{"custom_id": "a", "url": "/v1/completions", "body": []}', "body"),
        ('{"custom_id": "a", "url": "/v1/completions", "body": {}, "method": "GET"}', "method"),
        (line("a", stream=True), "stream"),
        ("\udcff", None),
    ],
)
async def test_a_line_that_is_no_request_is_answered_with_an_error(
    text: str, param: str | None
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_line(text)
    assert caught.value.param == param
    found = await run(FakeApp(), [text, line("good")])
    assert found[0]["response"] is None
    assert found[0]["error"]["message"] == caught.value.message
    assert found[1]["response"]["status_code"] == 200


async def test_blank_lines_are_nothing() -> None:
    assert len(await run(FakeApp(), ["\n", line("a"), "  ", line("b") + "\n"])) == 2


def options_for(folder: Path, *engine: str) -> ServeOptions:
    write_model_folder(folder / "model")
    stub = [sys.executable, str(STUB), "--folder", str(folder / "model")]
    stub += ["--journal", str(folder / "journal"), *engine]
    return ServeOptions(
        command=lambda address: [*stub, "--address", address], restart_backoff_s=0.1
    )


def test_a_file_is_answered_by_the_server_s_own_handlers(tmp_path: Path) -> None:
    lines = [
        line("chat", "/v1/chat/completions", messages=[{"role": "user", "content": "hello"}]),
        line("text", prompt="hello there", max_tokens=3),
        line("vector", "/v1/embeddings", input="hello"),
        line("wrong", prompt=""),
        line("fails", prompt="fail now", max_tokens=9),
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines))
    summary = run_file(options_for(tmp_path), source, target, show_progress=False)
    found = {one["custom_id"]: one for one in map(json.loads, target.read_text().splitlines())}
    assert list(found) == ["chat", "text", "vector", "wrong", "fails"]
    statuses = [one["response"]["status_code"] for one in found.values()]
    assert statuses == [200, 200, 200, 400, 500]
    assert (summary.requests, summary.failed) == (5, 2)
    assert found["text"]["response"]["body"]["usage"]["completion_tokens"] == 3
    assert [one.name for one in tmp_path.glob(".out*")] == []


def test_without_an_engine_there_is_no_output(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a", prompt="hello"))
    with pytest.raises(UnavailableError, match="pickled"):
        run_file(options_for(tmp_path, "--refuse-to-load"), source, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "model"]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="Cannot read"):
        run_file(options_for(tmp_path), tmp_path / "none", tmp_path / "out")
    source = tmp_path / "in.jsonl"
    source.write_text(line("a"))
    with pytest.raises(InvalidRequestError, match="Cannot write"):
        run_file(options_for(tmp_path), source, tmp_path / "no" / "out")
