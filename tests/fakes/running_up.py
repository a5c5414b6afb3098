"""`yaie up` as a process of its own, with the child server for engines and the real router."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fakes.local_machine import is_running

SCRIPT = Path(__file__).with_name("yaie_with_child_server.py")


def yaie(
    *arguments: str, state: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    where = ["--state-dir", str(state)] if state else []
    command = [sys.executable, str(SCRIPT), *arguments[:1], *where, *arguments[1:]]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def model_file(folder: Path, name: str = "demo", *, text: str = "") -> Path:
    """A file with one model; `text` goes below `spec`, indented by two."""
    path = folder / f"{name}.yaml"
    path.write_text(
        f"apiVersion: yaie.dev/v1alpha1\nkind: InferenceModel\nmetadata:\n  name: {name}\n"
        f"spec:\n  model:\n    source: builtin://yaie-demo\n{text}"
    )
    return path


class Up:
    """A running `yaie up`; its output is collected as it comes."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state = state
        command = [sys.executable, str(SCRIPT), "up", "--state-dir", str(state), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def port(self) -> int:
        line = next(line for line in self.lines if "endpoint" in line)
        return int(line.rstrip().removesuffix("/v1").rpartition(":")[2])

    def wait_for(self, text: str, timeout_s: float = 40.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def interrupt(self, number: signal.Signals = signal.SIGINT, timeout_s: float = 20.0) -> int:
        """Signal it and wait for its end; the exit status."""
        self.process.send_signal(number)
        return self.finish(timeout_s)

    def finish(self, timeout_s: float = 20.0) -> int:
        status = self.process.wait(timeout_s)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def chat(self, model: str) -> list[str]:
        """The words of one streamed answer through the published port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, text
        chunks = [line.removeprefix("data: ") for line in text.splitlines() if line]
        assert chunks.pop() == "[DONE]"
        return [json.loads(c)["choices"][0]["delta"]["content"].strip() for c in chunks]

    def pids(self) -> list[int]:
        """Processes of the pods."""
        found = self.state.glob("pods/*/process.json")
        return [json.loads(path.read_text())["pid"] for path in found]

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))


@contextlib.contextmanager
def up(state: Path, *arguments: str) -> Iterator[Up]:
    """Ended by force if a test left it running."""
    running = Up(state, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.interrupt(signal.SIGTERM)


def gone(pids: list[int]) -> bool:
    """Whether all have ended."""
    return not any(map(is_running, pids))


def until(fact: Any, timeout_s: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := fact()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return found
