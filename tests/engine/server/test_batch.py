"""Batch files: lines in, lines out, in order, whatever is in them."""

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from engine.server.running import STUB
from engine.text.vocabularies import write_model_folder
from yaie.server.batch.files import replacing
from yaie.server.batch.lines import ATTEMPTS, MAX_DEATHS, Batch, Result
from yaie.server.batch.parse import URLS, count_requests, parse_line
from yaie.server.batch.run import run_file
from yaie.server.metrics import ServerMetrics
from yaie.server.options import ServeOptions
from yaie.server.web.edge import Edge
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


async def test_progress_is_told_as_requests_end_and_not_as_lines_are_written() -> None:
    told: list[str] = []
    lines = [line(str(i), delay_s=0.05 * (3 - i)) for i in range(3)]
    await run(FakeApp(), lines, finished=lambda one: told.append(json.loads(one.line)["custom_id"]))
    assert told == ["2", "1", "0"]


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
    found = await run(FakeApp(), ["\n", text, line("good")])
    assert found[0]["response"] is None
    assert found[0]["error"]["message"] == caught.value.message
    assert (found[0]["error"]["param"], found[0]["error"]["line"]) == (param, 2)
    assert found[1]["response"]["status_code"] == 200


async def test_blank_lines_are_nothing() -> None:
    assert len(await run(FakeApp(), ["\n", line("a"), "  ", line("b") + "\n"])) == 2


async def test_a_batch_that_is_cancelled_ends_at_once() -> None:
    """Also the request whose turn it becomes when the first one is cancelled."""
    app = Edge(FakeApp(), ServerMetrics())
    lines = [line(str(i), delay_s=60) for i in range(4)]
    task = asyncio.ensure_future(Batch(app, concurrency=1).run(lines, [].append))
    await asyncio.sleep(0.05)
    task.cancel()
    _, running = await asyncio.wait([task], timeout=5)
    assert not running
    assert task.cancelled()


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


def test_a_custom_id_that_is_there_twice_is_refused_before_an_engine_starts(
    tmp_path: Path,
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join([line("a"), "", line("b"), "{", line("a")]))
    with pytest.raises(InvalidRequestError, match="'a' on lines 1 and 5") as caught:
        run_file(options_for(tmp_path), source, tmp_path / "out.jsonl")
    assert caught.value.param == "custom_id"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "model"]


def test_many_repeats_are_counted_and_some_are_named() -> None:
    lines = [line(str(i)) for i in range(9)] * 2
    with pytest.raises(InvalidRequestError, match="'4' on lines 5 and 14, and 4 more") as caught:
        count_requests(lines)
    assert "'5'" not in caught.value.message


def test_lines_without_an_id_are_counted_and_blank_ones_are_not() -> None:
    assert count_requests(["{", "{", "\n", line("a"), '{"custom_id": 5}', "\udcff"]) == 5
    for nothing in ([], ["\n", " \n"]):
        assert count_requests(nothing) == 0


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_has_an_empty_answer_and_needs_no_engine(
    tmp_path: Path, content: str
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(content)
    summary = run_file(options_for(tmp_path, "--refuse-to-load"), source, target)
    assert (summary.requests, summary.failed) == (0, 0)
    assert target.read_bytes() == b""


EVERY_PATH: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello", "max_tokens": 2},
    "/v1/responses": {"input": "hello", "max_output_tokens": 2},
    "/v1/responses/input_tokens": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/embeddings": {"input": "hello"},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/score": {"text_1": "a", "text_2": "b"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v2/rerank": {"query": "a", "documents": ["b"]},
    "/rerank": {"query": "a", "documents": ["b"]},
    "/v1/classify": {"input": "hello"},
    "/classify": {"input": "hello"},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [50]},
}


def test_a_line_may_ask_whatever_the_server_answers(tmp_path: Path) -> None:
    assert set(URLS) <= set(EVERY_PATH)
    lines = [line(url, url, **EVERY_PATH[url]) for url in URLS]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines))
    engine = ["--tasks", "generate", "embed", "classify", "--labels", "1"]
    options = options_for(tmp_path, *engine)
    summary = run_file(options, source, target, show_progress=False)
    found = [json.loads(one) for one in target.read_text().splitlines()]
    assert [one["custom_id"] for one in found] == list(URLS)
    assert {one["response"]["status_code"] for one in found} == {200}
    assert summary.completion_tokens > 3 * 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("chat/completions", "did you mean /v1/chat/completions?"),
        ("http://localhost:8000/v1/embeddings", "did you mean /v1/embeddings?"),
        ("/v1/images/generations", "it must be one of /v1/chat/completions, "),
        (5, "url must be one of /v1/chat/completions, "),
    ],
)
def test_a_url_that_is_not_served_is_told_the_one_that_was_meant(url: Any, said: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_line(line("a", url))
    assert said in caught.value.message


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(line("a", prompt="hello", max_tokens=2), encoding="utf-8-sig")
    summary = run_file(options_for(tmp_path), source, tmp_path / "out", show_progress=False)
    assert (summary.requests, summary.failed) == (1, 0)


def test_the_output_follows_a_link_and_the_umask(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with replacing(tmp_path / "link") as write:
        write(b"answer")
    (tmp_path / "usual").touch()
    assert (tmp_path / "there").read_bytes() == b"answer"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="Cannot read"):
        run_file(options_for(tmp_path), tmp_path / "none", tmp_path / "out")
    source = tmp_path / "in.jsonl"
    source.write_text(line("a"))
    with pytest.raises(InvalidRequestError, match="Cannot write"):
        run_file(options_for(tmp_path), source, tmp_path / "no" / "out")
    for target in (tmp_path, Path(os.devnull)):
        with pytest.raises(InvalidRequestError, match="it is not a file"):
            run_file(options_for(tmp_path), source, target)
    with pytest.raises(InvalidRequestError, match="would replace the requests"):
        run_file(options_for(tmp_path), source, source)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keep_open = os.open(pipe, os.O_RDWR)
    with pytest.raises(InvalidRequestError, match="not a pipe"):
        run_file(options_for(tmp_path), pipe, tmp_path / "out")
    os.close(keep_open)


def test_a_disk_that_is_full_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InvalidRequestError, match=r"Cannot write .*too large"):
            write_much(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def write_much(path: Path) -> None:
    with replacing(path) as write:
        for _ in range(100):
            write(bytes(1000))
