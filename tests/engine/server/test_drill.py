"""Faults under load, over the real loop and scheduler: each request ends exactly once, with the
right answer or with an error that says whether a retry can help.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engine.server.running import FAULTY, Answer, Server, serving
from engine.text.vocabularies import byte_level
from fakes.stub_runner import hashed
from yaie.core.batch import SlotInit
from yaie.core.request import SamplingParams

pytestmark = pytest.mark.drill

CLIENTS = 32
TOKENS = 60
RETRYABLE = (429, 503)
GREEDY = SlotInit(0, 0, SamplingParams(temperature=0.0), 0, ())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CLIENTS + 4) as made:
        yield made


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level()


def right_text(tokenizer: Tokenizer, prompt: str) -> str:
    """What the made-up model says, computed without any engine."""
    predict = hashed(tokenizer.get_vocab_size())
    context = tokenizer.encode(prompt).ids
    start = len(context)
    for _ in range(TOKENS):
        context.append(predict(context, GREEDY))
    return str(tokenizer.decode(context[start:]))


def complete(server: Server, prompt: str, *, stream: bool = False) -> Answer:
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": stream}
    return server.call("/v1/completions", body, timeout_s=60)


def load(server: Server, pool: ThreadPoolExecutor, name: str) -> dict[str, Future[Answer]]:
    """Start all clients, half of them streaming."""
    return {
        f"{name} {number}": pool.submit(complete, server, f"{name} {number}", stream=number % 2 > 0)
        for number in range(CLIENTS)
    }


def outcome(answer: Answer, right: str) -> str:
    """right, or the code of the error it ended with; anything else fails the test."""
    if answer.status != 200:
        assert answer.status in RETRYABLE, answer.body
        assert "retry-after" in answer.headers
        return str(answer.error["code"])
    if not answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.json["choices"][0]["text"] == right
        return "right"
    events = answer.events
    if "error" in events[-1]:
        assert events[-1]["error"]["type"] == "service_unavailable"
        return str(events[-1]["error"]["code"])
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["length"]
    assert "".join(event["choices"][0]["text"] for event in events) == right
    return "right"


def outcomes(futures: dict[str, Future[Answer]], tokenizer: Tokenizer) -> list[str]:
    return [
        outcome(future.result(90), right_text(tokenizer, prompt))
        for prompt, future in futures.items()
    ]


def pid_of(server: Server) -> int:
    return int(server.journal_entries("start")[-1]["pid"])


def running(server: Server) -> int:
    return int(server.call("/load").json["server_load"])


def wait_for_load(server: Server) -> int:
    """Until enough requests are in work; returns how many."""
    found = 0

    def enough() -> bool:
        nonlocal found
        found = running(server)
        return found >= CLIENTS // 2

    server.wait_for(enough)
    return found


def assert_as_new(server: Server, tokenizer: Tokenizer) -> None:
    server.wait_ready()
    assert outcome(complete(server, "afterwards"), right_text(tokenizer, "afterwards")) == "right"
    assert running(server) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_that_is_killed_or_stopped_is_replaced_under_load(
    tmp_path: Path, pool: ThreadPoolExecutor, tokenizer: Tokenizer, number: signal.Signals
) -> None:
    with serving(tmp_path, "--silent-s", "1.5", program=FAULTY) as server:
        server.wait_ready()
        first = pid_of(server)
        futures = load(server, pool, "under load")
        wait_for_load(server)
        os.kill(first, number)
        server.wait_for(lambda: server.call("/readyz").status == 503)
        assert server.call("/livez").status == 200
        found = outcomes(futures, tokenizer)
        assert set(found) <= {"right", "engine_died", "unavailable"}
        # The engine runs 16 at once: the rest had shown nothing and went on in the new process.
        assert found.count("right") >= CLIENTS - 16
        assert pid_of(server) != first
        assert_as_new(server, tokenizer)


def test_a_hanging_step_ends_the_engine_with_its_stacks_in_the_log(
    tmp_path: Path, pool: ThreadPoolExecutor, tokenizer: Tokenizer
) -> None:
    with serving(tmp_path, program=FAULTY) as server:
        server.wait_ready()
        first = pid_of(server)
        futures = load(server, pool, "beside a hang")
        wait_for_load(server)
        started = time.monotonic()
        hanging = pool.submit(complete, server, "hangstep")
        server.wait_for(lambda: server.call("/readyz").status == 503)
        assert time.monotonic() - started < 10
        # Tried once more, it hangs the next engine as well, and is given up.
        assert outcome(hanging.result(60), "") == "engine_died"
        assert set(outcomes(futures, tokenizer)) <= {"right", "engine_died", "unavailable"}
        assert pid_of(server) != first
        entries = [json.loads(line) for line in server.log_text().splitlines() if line[0] == "{"]
        hangs = [entry for entry in entries if entry["message"] == "step hangs"]
        assert len(hangs) == 2
        assert "in launch" in hangs[0]["stacks"]
        assert "a step did not end" in server.log_text()
        assert_as_new(server, tokenizer)


@pytest.mark.parametrize("fault", ["oomstep", "badstep", "nanstep"])
def test_a_request_that_breaks_its_steps_ends_alone(
    tmp_path: Path, pool: ThreadPoolExecutor, tokenizer: Tokenizer, fault: str
) -> None:
    with serving(tmp_path, program=FAULTY) as server:
        server.wait_ready()
        first = pid_of(server)
        futures = load(server, pool, "beside a fault")
        wait_for_load(server)
        failed = complete(server, fault)
        assert failed.status == 500
        assert "Error" not in failed.error["message"]
        assert set(outcomes(futures, tokenizer)) == {"right"}
        assert pid_of(server) == first
        assert_as_new(server, tokenizer)


def test_sigterm_under_load_loses_no_request(
    tmp_path: Path, pool: ThreadPoolExecutor, tokenizer: Tokenizer
) -> None:
    with serving(tmp_path, "--drain-s", "60", program=FAULTY) as server:
        server.wait_ready()
        futures = load(server, pool, "draining")
        in_work = wait_for_load(server)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: "draining" in server.log_text())
        found = outcomes(futures, tokenizer)
        assert set(found) <= {"right", "draining"}  # those that came too late may try elsewhere
        assert found.count("right") >= in_work
        assert server.process.wait(20) == 0
