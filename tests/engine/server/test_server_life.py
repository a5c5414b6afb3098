"""Starting, failing, dying, draining: real processes over the scripted engine."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.server.running import Answer, Server, serving
from fakes.local_machine import is_running


def in_background(call: Any, *arguments: Any, **fields: Any) -> list[Answer]:
    """Run a call in a thread; the list gets its answer."""
    answers: list[Answer] = []

    def run() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # the server was killed
            answers.append(call(*arguments, **fields))

    threading.Thread(target=run, daemon=True).start()
    return answers


def engine_pid(server: Server) -> int:
    return int(server.journal_entries("start")[-1]["pid"])


def test_while_loading_it_lives_and_is_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path, engine=["--loading-s", "2"]) as server:
        server.wait_for(lambda: server.call("/readyz").json.get("stage") == "weights")
        assert server.call("/livez").status == 200
        ready = server.call("/readyz")
        assert (ready.status, ready.json["reason"]) == (503, "loading")
        answer = server.chat("hello")
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert server.call("/v1/models").status == 503
        assert server.call("/metrics").status == 200
        server.wait_ready()


def test_a_model_that_cannot_be_loaded_ends_the_server_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_TERMINATION_LOG", str(tmp_path / "termination-log"))
    with serving(tmp_path, engine=["--refuse-to-load"]) as server:
        assert server.process.wait(15) == 1
        assert "The model folder has pickled weights." in server.log_text()
    assert (tmp_path / "termination-log").read_text() == "The model folder has pickled weights."


def test_a_tokenizer_that_cannot_be_read_is_refused_before_the_weights_are_loaded(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text("{")
    with serving(tmp_path, engine=["--loading-s", "30", "--tokenizer", str(broken)]) as server:
        assert server.process.wait(10) == 1
        assert "tokenizer.json" in server.log_text()


def test_a_dead_engine_ends_its_streams_with_an_event_and_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        first = engine_pid(server)
        slow = in_background(server.chat, "slow words", max_tokens=200, stream=True)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        time.sleep(0.2)
        os.kill(first, signal.SIGKILL)
        server.wait_for(lambda: slow)
        assert slow[0].events[-1]["error"]["code"] == "engine_died"
        down = server.call("/readyz")
        assert (down.status, down.json["reason"]) == (503, "restarting")
        assert server.call("/livez").status == 200
        refused = server.chat("hello")
        assert refused.status == 503
        assert "retry-after" in refused.headers
        server.wait_ready()
        assert engine_pid(server) != first
        assert server.chat("hello", max_tokens=2).status == 200
        assert b"yaie_engine_restarts_total 1.0" in server.call("/metrics").body


def test_a_dead_engine_fails_whole_answers_with_503(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        answer = server.chat("die now", max_tokens=50)
        assert (answer.status, answer.error["code"]) == (503, "engine_died")


def test_a_request_that_had_shown_nothing_goes_to_the_next_engine(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        waiting = in_background(server.chat, "mute", max_tokens=2)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        os.kill(engine_pid(server), signal.SIGKILL)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 2)
        assert not waiting


def test_a_request_that_kills_every_engine_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        answer = server.chat("crash it")
        assert (answer.status, answer.error["code"]) == (503, "engine_died")
        assert len(server.journal_entries("generate")) == 2
        server.wait_ready()
        assert server.chat("hello", max_tokens=1).status == 200


def test_an_engine_that_dies_too_often_ends_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for _ in range(2):  # each kills two engines
            server.wait_ready()
            answers = in_background(server.chat, "crash it")
            server.wait_for(lambda a=answers: a or server.process.poll() is not None)
            if len(server.journal_entries("start")) >= 4:
                break
        assert server.process.wait(30) == 1
        assert "engine failed" in server.log_text()


def test_sigterm_drains_and_ends_with_status_zero(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        pid = engine_pid(server)
        slow = in_background(server.chat, "slow words", max_tokens=60)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: server.call("/readyz").json["reason"] == "draining")
        refused = server.chat("hello")
        assert (refused.status, refused.error["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        assert server.process.wait(15) == 0
        assert slow[0].json["usage"]["completion_tokens"] == 60
        assert not is_running(pid)


def test_a_request_whose_body_still_comes_is_not_lost_in_a_drain(tmp_path: Path) -> None:
    body = json.dumps({"prompt": "hello there", "max_tokens": 3}).encode()
    with serving(tmp_path) as server:
        server.wait_ready()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
            raw.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(body) + body[:10]
            )
            server.wait_for(lambda: server.call("/livez").status == 200)  # it has been read
            server.process.send_signal(signal.SIGTERM)
            server.wait_for(lambda: server.call("/readyz").json["reason"] == "draining")
            time.sleep(2.5)  # longer than connections are kept once the drain is over
            raw.sendall(body[10:])
            answer = b"".join(iter(lambda: raw.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(15) == 0


def test_a_signal_to_the_whole_process_group_drains_too(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        slow = in_background(server.chat, "slow words", max_tokens=60)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        for pid in (engine_pid(server), server.process.pid):
            os.kill(pid, signal.SIGTERM)
        assert server.process.wait(15) == 0
        assert slow[0].json["usage"]["completion_tokens"] == 60


def test_what_does_not_end_in_time_is_cut_off_with_an_error(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-s", "0.3") as server:
        server.wait_ready()
        mute = in_background(server.chat, "mute", stream=True)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        time.sleep(0.1)
        assert mute[0].events[-1]["error"]["type"] == "service_unavailable"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, engine=["--loading-s", "30"]) as server:
        server.wait_for(lambda: server.call("/readyz").json.get("stage") == "weights")
        server.process.send_signal(number)
        assert server.process.wait(5) == 0


def test_a_second_signal_ends_a_drain(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-s", "60") as server:
        server.wait_ready()
        in_background(server.chat, "mute", stream=True)
        server.wait_for(lambda: len(server.journal_entries("generate")) == 1)
        server.process.send_signal(signal.SIGINT)
        server.wait_for(lambda: "draining" in server.log_text())
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0


def test_keys_protect_everything_but_health(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-key", "secret-1", "--api-key", "secret-2") as server:
        server.wait_ready()
        for path in ("/livez", "/readyz", "/health", "/ping", "/openapi.json", "/docs"):
            assert server.call(path).status == 200
        closed = ["/v1/models", "/metrics", "/version", "/nope", "//livez", "/./livez", "/livez/"]
        closed += ["/%2e/livez", "/livez%2f..", "/LIVEZ", "/"]
        for path in closed:
            answer = server.call(path)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key"), path
        for bad in ("Bearer", "Bearer ", "Bearer secret", "Basic secret-1", "secret-1"):
            assert server.call("/version", headers={"authorization": bad}).status == 401
        for key in ("secret-1", "secret-2"):
            headers = {"authorization": f"Bearer {key}"}
            assert server.call("/version", headers=headers).status == 200
        assert "secret" not in server.log_text()


def test_the_engine_process_does_not_get_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_API_KEY", "secret-1")
    monkeypatch.setenv("OTHER", "kept")
    with serving(tmp_path, "--api-key", "secret-1") as server:
        server.wait_ready()
        process = Path(f"/proc/{engine_pid(server)}")
        environment = process.joinpath("environ").read_text()
        assert "secret-1" not in environment + process.joinpath("cmdline").read_text()
        assert "OTHER=kept" in environment


def test_an_empty_key_is_welcome_where_none_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.call("/version", headers={"authorization": "Bearer "}).status == 200


def test_prompts_and_outputs_are_logged_when_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-prompts") as server:
        server.wait_ready()
        server.chat("hello visible-word", max_tokens=20)
        entries = [json.loads(line) for line in server.log_text().splitlines()]
        texts = {e["message"]: e["text"] for e in entries if e["logger"] == "yaie.prompts"}
        assert "visible-word" in texts["prompt"]
        assert texts["output"].startswith("user\nhello")


@pytest.mark.parametrize("sent", ["", "GET /version HTTP/1.1\r\nhost: 1.1.1.1\r\n", "whole + half"])
def test_half_a_header_cannot_hold_a_socket(tmp_path: Path, sent: str) -> None:
    sent = sent.replace("whole + half", "GET /version HTTP/1.1\r\nhost: 1.1.1.1\r\n\r\nGET")
    with (
        serving(tmp_path, "--header-s", "0.5") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw,
    ):
        raw.sendall(sent.encode())
        started = time.monotonic()
        while raw.recv(4096):
            continue
        assert time.monotonic() - started < 4


def test_half_a_body_is_refused_after_a_while(tmp_path: Path) -> None:
    with serving(tmp_path, "--body-s", "0.5") as server:
        server.wait_ready()
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
            raw.sendall(b"POST /tokenize HTTP/1.1\r\nhost: 1.1.1.1\r\ncontent-length: 50\r\n\r\n{")
            answer = raw.recv(4096)
            while not answer.endswith(b"}}"):
                answer += raw.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"too slowly" in answer


def test_the_engine_ends_when_the_http_process_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.wait_ready()
        pid = engine_pid(server)
        server.process.kill()
        deadline = time.monotonic() + 10
        while is_running(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
