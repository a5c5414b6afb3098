"""Several HTTP processes on one port over one engine process: together they are one server."""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.server.running import Server, serving
from engine.server.test_server_life import engine_pid, in_background
from yaie.core.messages import Accepted, Generate, Rejected, ResetPrefixCache, Stats, Tokens
from yaie.core.request import SamplingParams
from yaie.ipc.owners import Owners

pytestmark = pytest.mark.drill
COUNT = 3
ASKS = 12
"""Every process is asked: that one of three is left out has a chance of less than 1 in 100, and
what is asserted then holds all the same."""
TTFT = "yaie_engine_time_to_first_token_seconds_count"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("several")
    with serving(folder, "--api-server-count", str(COUNT), "--admin") as running:
        running.wait_ready()
        yield running


def http_processes(server: Server) -> list[int]:
    """Those that are not the first."""
    first = server.process.pid
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return sorted({int(one) for one in children} - {engine_pid(server)})


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_each_request_is_answered_whoever_takes_it(server: Server) -> None:
    assert len(http_processes(server)) == COUNT - 1
    for number in range(ASKS):
        answer = server.chat(f"hello number {number}", max_tokens=8).json
        assert answer["choices"][0]["message"]["content"].startswith("user\n")
        assert server.chat("slow words", stream=True, max_tokens=3).events[-1]["choices"]


def test_many_streams_at_once_end_each_for_itself(server: Server) -> None:
    answers = [
        in_background(server.chat, f"slow {number}", stream=True, max_tokens=20)
        for number in range(ASKS)
    ]
    for answer in answers:
        server.wait_for(lambda answer=answer: answer)
        assert answer[0].events[-1]["choices"][0]["finish_reason"] == "length"
    server.wait_for(lambda: server.call("/load").json == {"server_load": 0})


def test_whoever_is_asked_tells_the_metrics_of_all(server: Server) -> None:
    before = metric(server.call("/metrics").body.decode(), TTFT)
    for _ in range(ASKS):
        server.chat("hello", max_tokens=2)
    for _ in range(ASKS):
        text = server.call("/metrics").body.decode()
        assert metric(text, TTFT) == before + ASKS
        assert metric(text, "yaie_engine_kv_pages") == 100
    assert text.count("# TYPE " + TTFT.removesuffix("_count")) == 1
    assert metric(server.admin("/metrics").body.decode(), TTFT) == before + ASKS


def test_a_response_is_found_wherever_it_is_kept(server: Server) -> None:
    response_id = server.call("/v1/responses", {"input": "hello"}).json["id"]
    path = f"/v1/responses/{response_id}"
    for _ in range(ASKS):
        assert server.call(path).json["id"] == response_id
        more = {"input": "and more", "previous_response_id": response_id}
        assert server.call("/v1/responses", more).status == 200
    assert server.call(path, method="DELETE").json["deleted"] is True
    assert {server.call(path).status for _ in range(ASKS)} == {404}


def test_the_prefix_cache_is_reset_from_the_admin_port(server: Server) -> None:
    assert server.admin("/reset_prefix_cache", method="POST").json == {"status": "ok"}


def test_the_port_is_taken_for_another_server(server: Server) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))


def test_a_client_that_leaves_aborts_its_request(server: Server) -> None:
    before = len(server.journal_entries("abort"))
    body = {"messages": [{"role": "user", "content": "mute"}]}
    for _ in range(4):
        with pytest.raises(TimeoutError):
            server.call("/v1/chat/completions", body, timeout_s=0.3)
    server.wait_for(lambda: len(server.journal_entries("abort")) == before + 4)


def test_a_dead_engine_is_replaced_for_all(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", str(COUNT)) as server:
        server.wait_ready()
        slow = [
            in_background(server.chat, "slow words", max_tokens=200, stream=True)
            for _ in range(ASKS)
        ]
        # What has shown nothing yet would be asked again of the next engine.
        server.wait_for(lambda: metric(server.call("/metrics").body.decode(), TTFT) == ASKS)
        os.kill(engine_pid(server), signal.SIGKILL)
        for answer in slow:
            server.wait_for(lambda answer=answer: answer)
            assert answer[0].events[-1]["error"]["code"] == "engine_died"
        server.wait_for(lambda: len(server.journal_entries("start")) == 2)
        server.wait_ready()
        assert {server.chat("hello", max_tokens=2).status for _ in range(ASKS)} == {200}


def test_running_requests_of_all_end_before_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", str(COUNT)) as server:
        server.wait_ready()
        slow = [in_background(server.chat, "slow words", max_tokens=40) for _ in range(ASKS)]
        server.wait_for(lambda: len(server.journal_entries("generate")) == ASKS)
        others, engine = http_processes(server), engine_pid(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert [answer[0].json["usage"]["completion_tokens"] for answer in slow] == [40] * ASKS
        assert not any(Path(f"/proc/{pid}").exists() for pid in (*others, engine))


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", str(COUNT), "--drain-s", "60") as server:
        server.wait_ready()
        for _ in range(ASKS):
            in_background(server.chat, "mute", stream=True)
        server.wait_for(lambda: len(server.journal_entries("generate")) == ASKS)
        others = http_processes(server)
        for _ in range(2):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        assert server.process.wait(15) == 0
        for pid in others:
            _wait_gone(pid)


def test_one_that_dies_ends_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", "2") as server:
        server.wait_ready()
        os.kill(http_processes(server)[0], signal.SIGKILL)
        assert server.process.wait(15) == 1
        assert "an HTTP process has ended" in server.log_text()


def test_none_outlives_the_first(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", str(COUNT)) as server:
        server.wait_ready()
        others = http_processes(server)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(10)
        for pid in others:
            _wait_gone(pid)


def _wait_gone(pid: int) -> None:
    status = Path(f"/proc/{pid}/status")
    for _ in range(500):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")


# -- whose requests they are ----------------------------------------------------------------


def generate(request_id: str, n: int = 1) -> Generate:
    return Generate(request_id, (1,), SamplingParams(n=n, temperature=1.0))


def test_events_go_to_who_asked_and_nothing_is_kept_after_the_end() -> None:
    owners = Owners(2)
    owners.note([generate("a"), ResetPrefixCache("reset")], 0)
    owners.note([generate("b", n=2), generate("c")], 1)
    stats = Stats(1, 19, 3, 4, 5, 6, 7, 8, 9, 10, 11.0, 12)
    first = [Accepted("a"), Tokens("a", (1,)), Accepted("reset")]
    second = [Accepted("b"), Rejected("c", 429, "queue_full", "full"), Tokens("b", (1,), "stop")]
    assert owners.split([*first, *second, stats]) == [[*first, stats], [*second, stats]]
    assert len(owners) == 2
    last = [Tokens("a", (), "abort"), Tokens("b", (2,), "length", index=1)]
    assert owners.split(last) == [[last[0]], [last[1]]]
    assert len(owners) == 0
    assert owners.split([Tokens("a", (3,))]) == [[], []]


def test_one_process_gets_everything() -> None:
    owners = Owners(1)
    owners.note([generate("a")], 0)
    assert owners.split([Tokens("x", (1,))]) == [[Tokens("x", (1,))]]
    assert len(owners) == 0
