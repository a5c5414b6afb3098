"""`yaie chat` as a program: piped, with --prompt, and on a pseudo-terminal."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.server.running import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("chat")) as running:
        running.wait_ready()
        yield running


def chat(
    server: Server, *arguments: str, stdin: str = "", endpoint: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "yaie", "chat", "--endpoint", endpoint or server.url, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_piped_input_gets_one_answer_and_its_measurements(server: Server) -> None:
    done = chat(server, "--max-tokens", "7", stdin="hello there\n")
    assert (done.returncode, done.stdout) == (0, "user\nhell\n")
    assert re.fullmatch(r"TTFT \d+ ms · \d+\.\d tokens/s\n", done.stderr)


def test_a_prompt_on_the_command_line_wins_over_input(server: Server) -> None:
    done = chat(server, "--prompt", "hello", "--max-tokens", "7", stdin="refuse")
    assert (done.returncode, done.stdout) == (0, "user\nhell\n")


def test_input_that_is_no_text_is_refused_before_anything_is_sent(server: Server) -> None:
    command = [sys.executable, "-m", "yaie", "chat", "--endpoint", server.url]
    done = subprocess.run(command, input=b"\xff\xfe", capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (1, b"yaie: standard input is not UTF-8 text\n")


def test_the_measurements_are_those_of_the_answer(server: Server) -> None:
    """The engine takes 20 ms a token; who reads late sees a later first token, not more time."""
    tokens = server.chat("slow words", max_tokens=30).json["usage"]["completion_tokens"]
    done = chat(server, "--prompt", "slow words", "--max-tokens", "30")
    ttft_ms, rate = (float(number) for number in re.findall(r"[\d.]+", done.stderr))
    assert ttft_ms / 1000 + (tokens - 1) / rate > 0.9 * 0.02 * tokens


def test_the_endpoint_may_be_written_in_several_ways(server: Server) -> None:
    for endpoint in (f"127.0.0.1:{server.port}", server.url + "/", server.url + "/v1"):
        assert chat(server, "--prompt", "hello", endpoint=endpoint).returncode == 0


def test_options_reach_the_request(server: Server) -> None:
    bad = chat(server, "--prompt", "hello", "--temperature", "7")
    assert bad.returncode == 1
    assert bad.stderr == "yaie: temperature must be a number in [0, 2], got 7.0.\n"
    unknown = chat(server, "--prompt", "hello", "--model", "nope")
    assert "does not exist" in unknown.stderr
    alias = chat(server, "--prompt", "hello", "--model", "alias", "--system", "be brief")
    assert alias.stdout.startswith("system\nbe brief")


def test_nothing_that_listens_is_a_clear_error(server: Server) -> None:
    done = chat(server, "--prompt", "x", endpoint="http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("yaie: Nothing answers at http://127.0.0.1:1. Start a model")


def test_an_endpoint_that_is_no_url_is_a_clear_error(server: Server) -> None:
    assert "Traceback" not in chat(server, "--prompt", "x", endpoint="http://[").stderr
    assert "is not a URL" in chat(server, "--prompt", "x", endpoint="ftp://x").stderr


def test_an_error_in_the_stream_ends_with_status_one(server: Server) -> None:
    done = chat(server, "--prompt", "fail now")
    assert done.returncode == 1
    assert done.stdout == "u\n"
    assert done.stderr == "yaie: The numbers were not finite.\n"


def test_no_prompt_at_all_is_wrong_usage(server: Server) -> None:
    done = chat(server, stdin="")
    assert done.returncode == 2
    assert "--prompt" in done.stderr


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, server: Server, home: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {
            "TERM": "dumb",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(home),
            "NO_COLOR": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "yaie", "chat", "--endpoint", server.url, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | environment,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.seen = ""

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self.master, keys.encode())

    def wait(self, text: str, timeout_s: float = 15.0) -> str:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            with contextlib.suppress(BlockingIOError, OSError):
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            time.sleep(0.01)
        return self.seen

    def press(self, keys: str, *, until: str) -> None:
        """Type the keys, again if they came while no prompt was there to take them."""
        for _ in range(10):
            self.type(keys)
            with contextlib.suppress(AssertionError):
                self.wait(until, 2)
                return
        raise AssertionError(self.seen)

    def leave(self) -> int:
        """Ctrl-D, again if the first one came between two prompts; the exit status."""
        for _ in range(10):
            self.type("\x04")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(1)
        raise AssertionError("the program does not end")

    def ask(self, line: str, *, until: str) -> str:
        self.type(line + "\r")
        return self.wait(until)


@pytest.fixture
def terminal(server: Server, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(server, tmp_path, "--max-tokens", "40")
    try:
        opened.wait(">>> ")
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait(10)
        os.close(opened.master)


def test_the_terminal_streams_answers_and_obeys_commands(terminal: Terminal) -> None:
    terminal.ask("refuse this", until="The queue is full.")
    terminal.ask("hello there", until="assistant")
    assert "tokens/s" in terminal.ask("/stats", until="cached")
    terminal.ask("/help", until="Ctrl-C stops an answer.")
    terminal.ask("/model", until="* stub")
    terminal.ask("/model nope", until="There is no model nope")
    terminal.ask("/model alias", until="Talking to alias.")
    terminal.ask("/system be brief", until="System message: be brief")
    terminal.ask("/clear", until="forgotten")
    terminal.ask("/nope", until="Unknown command /nope")
    terminal.type("/bye\r")
    assert terminal.process.wait(10) == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(server: Server, tmp_path: Path) -> None:
    before = len(server.journal_entries("abort"))
    terminal = Terminal(server, tmp_path, "--max-tokens", "200")
    try:
        terminal.wait(">>> ")
        terminal.ask("slow words go on", until="user")
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.wait("(stopped)")
        server.wait_for(lambda: len(server.journal_entries("abort")) > before)
        terminal.wait(">>> ")
        terminal.press("\x03", until="/bye or Ctrl-D leaves.")
        assert terminal.leave() == 0
    finally:
        terminal.process.kill()
        terminal.process.wait(10)
        os.close(terminal.master)


def test_history_is_kept_for_the_user_only(terminal: Terminal, tmp_path: Path) -> None:
    terminal.ask("hello history", until=">>> ")
    assert terminal.leave() == 0
    path = tmp_path / "yaie" / "chat_history"
    assert "hello history" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_that_listens_ends_the_terminal_program_too(server: Server, tmp_path: Path) -> None:
    terminal = Terminal(server, tmp_path, "--endpoint", "127.0.0.1:1")
    terminal.wait("Nothing answers at")
    assert terminal.process.wait(10) == 1
    os.close(terminal.master)
