"""Continuous streaming requests of several clients, and what became of each."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Load:
    """`done`: answers that came whole; `failures`: what became of the others, with its words."""

    port: int
    model: str = "demo"
    max_tokens: int = 48
    done: int = 0
    failures: list[str] = field(default_factory=list)
    engines: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, clients: int) -> Iterator["Load"]:
        """Keep `clients` requests in flight while the block runs; then let the last ones end."""
        threads = [threading.Thread(target=self._client, args=(n,)) for n in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def more(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many further answers have come."""
        target, deadline = self.done + count, time.monotonic() + timeout_s
        while self.done < target:
            assert time.monotonic() < deadline, f"{self.done} of {target} answers; {self.failures}"
            time.sleep(0.05)

    def _client(self, number: int) -> None:
        while not self._stop.is_set():
            began, engine = time.monotonic(), ""
            try:
                failure, engine = self._ask(f"client {number}: tell me about dogs")
            except (OSError, http.client.HTTPException) as error:
                failure = repr(error)
            with self._lock:
                if failure:
                    self.failures.append(f"{failure} after {time.monotonic() - began:.2f} s")
                else:
                    self.done += 1
                    self.engines.add(engine)

    def _ask(self, text: str) -> tuple[str, str]:
        """One streamed answer: (what went wrong or "", the engine that answered)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {
            "model": self.model,
            "stream": True,
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": text}],
        }
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            told = answer.read()
        finally:
            connection.close()
        engine = answer.getheader("x-yaie-endpoint") or ""
        if answer.status != 200:
            return f"{answer.status} {told[:300].decode(errors='replace')}", engine
        wrong = what_is_wrong(told)
        return (f"stream of {engine}: {wrong}" if wrong else ""), engine


def what_is_wrong(told: bytes) -> str:
    """Why a stream of chat chunks is no whole answer; "" for one that is.

    Router and engine end a broken stream with an error event and [DONE], so [DONE] alone says
    nothing: the answer's own end has to be there, too.
    """
    events = [line.partition(b":")[2].strip() for line in told.splitlines() if _is_data(line)]
    if not events or events.pop() != b"[DONE]":
        return f"no [DONE] at its end: {_last_of(told)}"
    reasons = set[str | None]()
    for event in events:
        try:
            chunk = json.loads(event)
        except ValueError:
            return f"no JSON: {_last_of(event)}"
        if not isinstance(chunk, dict) or "error" in chunk:
            return f"an error: {_last_of(event)}"
        reasons |= {choice.get("finish_reason") for choice in chunk.get("choices") or ()}
    return "" if reasons & {"stop", "length"} else f"no finish_reason: {_last_of(told)}"


def _is_data(line: bytes) -> bool:
    return line.startswith(b"data:")


def _last_of(told: bytes) -> str:
    return told[-300:].decode(errors="replace")
