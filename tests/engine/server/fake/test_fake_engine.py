"""`yaie fake-engine`, as a user types it, asked by the official client and over the wire."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from yaie_api.http.replay import MARK, Identity, add_words, new_words, note, tail_of
from yaie_api.names import HEADER_REPLAY

HELLO: Any = [{"role": "user", "content": "hello"}]


@dataclass
class Running:
    process: subprocess.Popen[str]
    url: str

    def ask(self, **fields: Any) -> tuple[int, str, dict[str, str]]:
        """Status, body and headers; the body up to where the connection broke."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=5)
        body = json.dumps({"messages": HELLO} | fields)
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        found = b""
        try:
            while piece := response.read1():
                found += piece
        except (http.client.HTTPException, OSError) as error:
            found += type(error).__name__.encode()
        finally:
            connection.close()
        return response.status, found.decode(), {k.lower(): v for k, v in response.getheaders()}

    def fail(self, words: str) -> None:
        request = urllib.request.Request(f"{self.url}/fail", words.encode())
        with urllib.request.urlopen(request) as response:
            assert response.status == 204

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("fake") / "log"
    flags = ("--port", "0", "--ttft", "0.1", "--itl", "0.02", "--output-tokens", "6")
    more = ("--served-model-name", "demo", "--sse-keep-alive-interval", "0.1")
    ends = ("--shutdown-timeout", "0", "--log-format", "json")
    command = [sys.executable, "-m", "yaie", "fake-engine", *flags, *more, *ends]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stderr=file, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    try:
        yield Running(process, _url(process, log))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _url(process: subprocess.Popen[str], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if line.endswith("}") and (entry := json.loads(line))["message"] == "ready":
                return str(entry["url"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError("not ready")


@pytest.fixture(autouse=True)
def sound(engine: Running) -> Iterator[None]:
    yield
    engine.fail("")


def test_the_official_client_gets_an_answer_at_the_scripted_times(engine: Running) -> None:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none") as client:
        assert [one.id for one in client.models.list()] == ["demo"]
        began = time.monotonic()
        stream = client.chat.completions.create(
            model="demo", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    assert time.monotonic() - began >= 0.1 + 5 * 0.02
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text.startswith("Every good engine")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_a_client_may_ask_for_less_and_is_checked_as_by_a_real_engine(engine: Running) -> None:
    _, body, _ = engine.ask(max_tokens=2, n=2)
    answer = json.loads(body)
    assert answer["usage"]["completion_tokens"] == 4
    assert [one["finish_reason"] for one in answer["choices"]] == ["length", "length"]
    status, body, _ = engine.ask(max_tokens=-1)
    assert status == 400
    assert json.loads(body)["error"]["param"] == "max_tokens"


@pytest.mark.parametrize(("kind", "status"), [("5xx", 500), ("429", 429), ("503", 503)])
def test_a_refusal_is_one_as_of_a_real_engine(kind: str, status: int, engine: Running) -> None:
    engine.fail(kind)
    told, body, headers = engine.ask()
    assert told == status
    assert json.loads(body)["error"]["message"]
    assert ("retry-after" in headers) == (kind != "5xx")


@pytest.mark.parametrize(
    ("kind", "tokens", "end"),
    [("reset", 2, "IncompleteRead"), ("error", 2, "data: [DONE]\n\n")],
)
def test_a_stream_breaks_after_two_tokens(
    kind: str, tokens: int, end: str, engine: Running
) -> None:
    engine.fail(kind)
    _, body, _ = engine.ask(stream=True)
    assert body.count('"content":"') - 1 == tokens  # the role has an empty one
    assert body.endswith(end)
    assert ("engine_error" in body) == (kind == "error")


@pytest.mark.parametrize(("kind", "tokens"), [("heartbeats", 0), ("stall", 2)])
def test_a_silent_stream_has_comments_only(kind: str, tokens: int, engine: Running) -> None:
    engine.fail(kind)
    connection = http.client.HTTPConnection(engine.url.removeprefix("http://"), timeout=5)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps({"messages": HELLO, "stream": True})
    )
    response, found = connection.getresponse(), b""
    while not found.endswith(b": ping\n\n: ping\n\n"):
        found += response.read1()
    assert found.count(b'"content":"') - 1 == tokens
    assert engine.metric("yaie_engine_running_requests") >= 0
    connection.close()


def test_a_hanging_request_has_no_answer(engine: Running) -> None:
    engine.fail("hang")
    connection = http.client.HTTPConnection(engine.url.removeprefix("http://"), timeout=0.3)
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": HELLO}))
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_metrics_are_those_of_an_engine(engine: Running) -> None:
    before = engine.metric("yaie_engine_time_to_first_token_seconds_count")
    engine.ask(stream=True)
    assert engine.metric("yaie_engine_time_to_first_token_seconds_count") == before + 1
    assert engine.metric("yaie_engine_kv_pages_free") > 0


def test_wrong_failures_are_told(engine: Running, capfd: pytest.CaptureFixture[str]) -> None:
    request = urllib.request.Request(f"{engine.url}/fail", b"boom")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request)
    assert raised.value.code == 400
    assert b"write one of 5xx" in raised.value.read()
    raised.value.close()
    for words, told in (
        (["boom"], "is no kind of failure"),
        (["5xx:0.6", "429:0.6"], "more than 1 together"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "yaie", "fake-engine", "--fail", *words],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode in (1, 2)
        assert told in done.stderr


def test_it_goes_on_from_the_tokens_that_a_client_has(engine: Running) -> None:
    identity = Identity("0" * 32, 1, 1)
    body = json.dumps({"messages": HELLO, "stream": True}).encode()

    def asked(identity: Identity, tail: bytes) -> list[bytes]:
        url, headers = f"{engine.url}/v1/chat/completions", {HEADER_REPLAY: identity.header()}
        request = urllib.request.Request(url, body + tail, headers)
        with urllib.request.urlopen(request) as response:
            return [part for part in response.read().split(b"\n\n") if b'"content":' in part]

    words = new_words()
    add_words(words, note([70, 71]).removeprefix(MARK))
    tail = tail_of(words)
    whole = asked(identity, b"")
    rest = asked(msgspec.structs.replace(identity, tail_bytes=len(tail)), tail)
    assert len(rest) == len(whole) - 3  # the role, and two tokens
