"""`yaie serve` with a prefix key over the built-in model: what a router reads at /prefixes."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from yaie_api.prefix import Outcome, PrefixIndex, decode, keys

KEY = bytes(range(32))
PAGE = 16
pytestmark = pytest.mark.drill


class Reader:
    """A router's side: one stream, and the index that it keeps."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
        self._answer = self._asked()
        deadline_s = time.monotonic() + 20
        while self._answer.status == 503:  # an engine that has just become ready
            assert time.monotonic() < deadline_s
            self._answer.read()
            time.sleep(0.05)
            self._answer = self._asked()
        assert self._answer.status == 200
        self.index = PrefixIndex()

    def _asked(self) -> http.client.HTTPResponse:
        self._connection.request("GET", "/prefixes")
        return self._connection.getresponse()

    def until(self, condition: Callable[[PrefixIndex], bool]) -> None:
        """Read until the index is so."""
        deadline_s = time.monotonic() + 20
        while not condition(self.index):
            assert time.monotonic() < deadline_s
            line = self._answer.readline()
            assert line, "the stream has ended"
            assert self.index.apply(decode(line)) is not Outcome.NEEDS_SNAPSHOT

    def rest(self) -> None:
        """Read to the end of the stream."""
        with contextlib.suppress(http.client.IncompleteRead):
            self._answer.read()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


class Engine:
    def __init__(self, folder: Path, *flags: str) -> None:
        self.log = folder / "serve.log"
        command = [sys.executable, "-m", "yaie", "serve", "builtin://yaie-demo", "--port", "0"]
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*command, "--device", "cpu", "--log-format", "json", *flags],
                stderr=stderr,
                env=os.environ | {"OMP_NUM_THREADS": "1", "YAIE_PREFIX_KEY": KEY.hex()},
            )
        self.wait(lambda: '"url": "' in self.log.read_text())
        found = re.search(r'"url": "http://127.0.0.1:(\d+)"', self.log.read_text())
        assert found is not None
        self.port = int(found[1])
        self.wait_ready()

    def wait_ready(self) -> None:
        self.wait(lambda: self.ask("GET", "/readyz")[0] == 200)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline_s, self.log.read_text()
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")

    def text(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def chat(self, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The answer's message, as it came, and how much of the prompt was cached."""
        fields = {"messages": messages, "max_tokens": 24, "temperature": 0} | more
        status, answer = self.ask("POST", "/v1/chat/completions", fields)
        assert status == 200, answer
        details = answer["usage"]["prompt_tokens_details"]
        return answer["choices"][0]["message"] | {"cached": details["cached_tokens"]}

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("prefixes")
    running = Engine(folder, "--kv-cache-tokens", "1024", "--max-model-len", "512")
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait(10)


@pytest.fixture
def read(engine: Engine) -> Iterator[Callable[[], Reader]]:
    """Opens streams."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Reader(engine.port)))


def keys_of(messages: list[dict[str, Any]]) -> list[int]:
    """As a router computes them."""
    return list(keys({"messages": messages}, KEY, model="yaie-demo").keys)


def depth(index: PrefixIndex, messages: list[dict[str, Any]]) -> int:
    return max((index.tokens.get(key, 0) for key in keys_of(messages)), default=0)


def talk(subject: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": f"You know all about {subject}. " * 12},
        {"role": "user", "content": f"Tell me of {subject}, and spare no words. " * 5},
    ]


def test_a_conversation_is_told_turn_by_turn_and_forgotten_when_it_is_evicted(
    engine: Engine, read: Callable[[], Reader]
) -> None:
    reader = read()
    first = talk("foxes")
    answer = engine.chat(first)
    cached = answer.pop("cached")
    assert cached == 0
    second = [*first, answer, {"role": "user", "content": "And then?"}]
    reader.until(lambda index: keys_of([*first, answer])[-1] in index.tokens)
    told = depth(reader.index, second)
    assert told >= depth(reader.index, first) > 0
    assert abs(engine.chat(second)["cached"] - told) <= PAGE  # the next turn finds what was told
    assert depth(reader.index, talk("hens")) == 0
    for subject in ("hens", "wolves", "owls", "bears", "hares", "deer", "mice", "cats", "dogs"):
        engine.chat(talk(subject))
    reader.until(lambda index: depth(index, talk("dogs")) > 0)
    assert depth(reader.index, first) == 0
    assert reader.index.load.kv_tokens_total >= 1024
    assert re.search(r"^yaie_engine_prefix_keys [1-9]", engine.text("/metrics"), re.MULTILINE)


def test_a_stream_that_begins_later_has_the_same_keys(
    engine: Engine, read: Callable[[], Reader]
) -> None:
    early, late = read(), read()
    engine.chat(talk("lynxes"), stream=False)
    early.until(lambda index: depth(index, talk("lynxes")) > 0)
    late.until(lambda index: index.sequence >= early.index.sequence)
    early.until(lambda index: index.sequence >= late.index.sequence)
    assert early.index.tokens == late.index.tokens


def test_other_apis_and_streams_are_keyed_alike_and_other_salts_apart(
    engine: Engine, read: Callable[[], Reader]
) -> None:
    reader = read()
    apart = {"messages": talk("newts"), "cache_salt": "s"}
    engine.chat(talk("newts"), cache_salt="s")
    engine.ask("POST", "/v1/messages", {"messages": talk("toads")[1:], "max_tokens": 4,
                                        "model": "yaie-demo"})  # fmt: skip
    reader.until(lambda index: depth(index, talk("toads")[1:]) > 0)
    assert depth(reader.index, talk("newts")) == 0
    salted = keys(apart, KEY, model="yaie-demo").keys
    assert set(salted) & reader.index.tokens.keys()
    engine.ask("POST", "/v1/completions", {"prompt": ["a " * 99, "b " * 99], "max_tokens": 1})
    engine.ask("POST", "/v1/completions", {"prompt": "c " * 400, "max_tokens": 1})
    long = keys({"prompt": "c " * 400}, KEY, model="yaie-demo").keys
    reader.until(lambda index: set(long) & index.tokens.keys() != set())
    several = keys({"prompt": ["a " * 99, "b " * 99]}, KEY, model="yaie-demo").keys
    assert not set(several) & reader.index.tokens.keys()


def test_after_sigkill_the_stream_ends_and_the_next_one_has_another_epoch(
    engine: Engine, read: Callable[[], Reader]
) -> None:
    reader = read()
    engine.chat(talk("foxes"))
    reader.until(lambda index: depth(index, talk("foxes")) > 0)
    epoch = reader.index.epoch
    (pid,) = engine.children()
    os.kill(pid, signal.SIGKILL)
    reader.rest()
    engine.wait(lambda: engine.ask("GET", "/readyz")[0] != 200 or engine.children() != [pid])
    engine.wait_ready()
    engine.wait(lambda: engine.children() != [pid])
    following = read()
    following.until(lambda index: index.current)
    assert following.index.epoch != epoch
    assert following.index.tokens == {}


def test_the_key_is_in_no_log_and_a_stream_does_not_hold_up_the_end(
    engine: Engine, read: Callable[[], Reader]
) -> None:
    reader = read()
    reader.until(lambda index: index.current)
    for pid in engine.children():  # the engine process never gets it
        assert KEY.hex() not in Path(f"/proc/{pid}/environ").read_text()
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(10) == 0
    reader.rest()
    assert KEY.hex() not in engine.log.read_text()
