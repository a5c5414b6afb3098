"""A program on a terminal: what it shows, and keys that are pressed."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
"""A process of its own owns the terminal: a test has threads, and may not fork."""


class Terminal:
    """A command on a terminal of 100 columns; its output is collected as it comes."""

    def __init__(self, *command: str, env: Mapping[str, str]) -> None:
        own = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SPAWN, *command],
            env={**env, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """Everything that was written to the terminal, control sequences included."""
        return self._shown.decode(errors="replace")

    @property
    def text(self) -> str:
        """What was written, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]", "", self.shown).replace("\r", "")

    def press(self, keys: str) -> None:
        r"""Type keys; `\x03` is Ctrl-C, `\x04` Ctrl-D, `\r` Enter."""
        assert self.process.stdin is not None
        self.process.stdin.write(keys.encode())
        self.process.stdin.flush()

    def wait_for(self, text: str, timeout_s: float = 40.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def leave(self, keys: str) -> int:
        """Type keys until the program has ended: between two prompts nobody takes them."""
        for _ in range(10):
            self.press(keys)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.end(5)
        raise AssertionError(self.text)

    def end(self, timeout_s: float = 30.0) -> int:
        """Wait for the program's end; its exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join(5)
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            while part := os.read(self.process.stdout.fileno(), 65536):
                self._shown += part


@contextlib.contextmanager
def terminal(*command: str, env: Mapping[str, str]) -> Iterator[Terminal]:
    """Ended by force if a test left it running."""
    running = Terminal(*command, env=env)
    try:
        yield running
    finally:
        running.close()
