"""A real server process on loopback over the scripted engine, and small ways to ask it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.text.vocabularies import write_model_folder

STUB = Path(__file__).with_name("stub_engine.py")
FAULTY = Path(__file__).with_name("fault_engine.py")
SERVE = Path(__file__).with_name("serve_stub.py")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return dict(found)

    @property
    def events(self) -> list[Any]:
        """Payloads of a stream; the last one must be [DONE]."""
        text = self.body.decode()
        assert text.endswith("data: [DONE]\n\n")
        lines = [event for event in text.split("\n\n") if event]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        return [json.loads(line[6:]) for line in lines[:-1]]


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    journal: Path
    admin_port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20.0,
        port: int | None = None,
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{port or self.port}{path}"
        request = urllib.request.Request(  # loopback only
            url, data=data, headers=headers or {}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def admin(self, path: str, *, method: str = "GET") -> Answer:
        return self.call(path, method=method, port=self.admin_port)

    def chat(self, content: str, **fields: Any) -> Answer:
        messages = [{"role": "user", "content": content}]
        return self.call("/v1/chat/completions", {"messages": messages} | fields)

    def journal_entries(self, event: str) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        entries = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [entry for entry in entries if entry["event"] == event]

    def wait_for(self, condition: Any, timeout_s: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            assert self.process.poll() is None, "the server has ended"
            time.sleep(0.02)

    def wait_ready(self) -> None:
        self.wait_for(lambda: self.call("/readyz").status == 200)

    def log_text(self) -> str:
        return self.journal.with_suffix(".log").read_text()


@contextlib.contextmanager
def serving(
    folder: Path, *arguments: str, engine: Sequence[str] = (), program: Path = STUB
) -> Iterator[Server]:
    """A server process in `folder`; ended with SIGKILL if a test has not ended it. `program`: its
    engine process, with the arguments `engine`.
    """
    write_model_folder(folder / "model")
    journal = folder / "journal.jsonl"
    stub = [str(program), "--folder", str(folder / "model"), "--journal", str(journal), *engine]
    port_file = folder / "port"
    command = [sys.executable, str(SERVE), str(port_file), json.dumps(stub), *arguments]
    with journal.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, stderr=log, text=True, env=os.environ | {"COLUMNS": "80"}
        )
        try:
            n_ports = 2 if "--admin" in arguments else 1
            ports = _ports(process, port_file, n_ports)
            yield Server(process, ports[0], journal, admin_port=ports[-1])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(10)


def _ports(process: subprocess.Popen[str], port_file: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 20
    while not port_file.exists() or port_file.read_text().count("\n") < count:
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(line) for line in port_file.read_text().split()]
