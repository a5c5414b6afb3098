"""`yaie serve` as a program over the built-in model: both processes, nothing scripted."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from engine.server.running import Server

MODEL = "builtin://yaie-demo"


def start(folder: Path, *arguments: str, model: str = MODEL) -> Server:
    """The program, once it listens."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "yaie", "serve", model, "--port", "0", "--device", "cpu"]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--log-format", "json", *arguments],
            stderr=stderr,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    deadline = time.monotonic() + 30
    while not (found := re.search(r'"url": "http://127.0.0.1:(\d+)"', log.read_text())):
        assert time.monotonic() < deadline
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    return Server(process, int(found[1]), log.with_name("serve.jsonl"))


def end(server: Server) -> None:
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait(10)


def engine_pids(server: Server) -> list[int]:
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start(tmp_path_factory.mktemp("real"), "--served-model-name", "demo", "other")
    try:
        running.wait_for(lambda: running.call("/readyz").status == 200, 100)
        yield running
    finally:
        end(running)


def test_a_streamed_answer_equals_the_whole_one(server: Server) -> None:
    fields = {"max_tokens": 24, "temperature": 0.7, "seed": 11}
    whole = server.chat("What is a kernel?", **fields).json
    events = server.chat("What is a kernel?", stream=True, **fields).events
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    assert len(text) > 10
    assert whole["model"] == "demo"
    assert len(events) > 5


def test_required_tools_are_called_in_every_shape(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    question = "What is the weather in Paris?"
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none") as client:
        with client.responses.stream(
            model="demo",
            input=question,
            tools=[{"type": "function", "name": "weather", "parameters": schema, "strict": True}],
            tool_choice="required",
            parallel_tool_calls=False,
        ) as stream:
            (item,) = stream.get_final_response().output
        assert item.type == "function_call"
        assert json.loads(item.arguments)["city"] in ("Paris", "Rome")
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 100,
        "tools": [{"name": "weather", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    }
    message = server.call("/v1/messages", body).json
    assert message["stop_reason"] == "tool_use"
    assert message["content"][-1]["input"]["city"] in ("Paris", "Rome")


def test_the_answer_ends_by_itself_and_its_usage_adds_up(server: Server) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            model="other", messages=[{"role": "user", "content": "Say hello."}], temperature=0
        )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    count = server.call("/tokenize", {"prompt": answer.choices[0].message.content}).json["count"]
    assert answer.usage.completion_tokens == pytest.approx(count + 1, abs=2)


def test_a_repeated_prompt_is_found_in_the_cache(server: Server) -> None:
    prompt = "A long enough prefix to fill some pages of the cache. " * 8
    first = server.call("/v1/completions", {"prompt": prompt, "max_tokens": 1}).json["usage"]
    second = server.call("/v1/completions", {"prompt": prompt, "max_tokens": 1}).json["usage"]
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens"] - 32 <= cached < second["prompt_tokens"]


def test_the_context_limit_of_the_model_is_enforced(server: Server) -> None:
    limit = server.call("/v1/models").json["data"][0]["max_model_len"]
    answer = server.call("/v1/completions", {"prompt": [5] * limit})
    assert answer.status == 400
    assert answer.error["message"].startswith(
        f"This model's maximum context length is {limit} tokens."
    )


def test_leaving_clients_free_their_pages(server: Server) -> None:
    def used() -> float:
        text = server.call("/metrics").body.decode()
        found = re.search(r"^yaie_engine_running_requests (\S+)$", text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    with openai.OpenAI(base_url=server.url + "/v1", api_key="none") as client:
        stream = client.completions.create(
            model="demo",
            prompt="Once",
            max_tokens=1500,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        server.wait_for(lambda: used() == 1.0)
        stream.close()
    server.wait_for(lambda: used() == 0.0, 5)


@pytest.mark.slow
def test_a_killed_engine_is_replaced_and_a_signal_ends_everything(tmp_path: Path) -> None:
    server = start(tmp_path, "--max-num-seqs", "4")
    try:
        server.wait_for(lambda: server.call("/readyz").status == 200, 100)
        (first,) = engine_pids(server)
        answers: list[object] = []
        body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        thread = threading.Thread(
            target=lambda: answers.append(server.call("/v1/completions", body, timeout_s=60))
        )
        thread.start()
        server.wait_for(lambda: b"running_requests 1.0" in server.call("/metrics").body)
        os.kill(first, signal.SIGKILL)
        thread.join(20)
        assert answers[0].events[-1]["error"]["code"] == "engine_died"  # type: ignore[attr-defined]  # an Answer
        server.wait_for(lambda: server.call("/readyz").status == 200, 100)
        (second,) = engine_pids(server)
        assert second != first
        assert server.chat("hello", max_tokens=3).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        assert not Path(f"/proc/{second}").exists()
    finally:
        end(server)


SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 8,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
EVIL = {
    "architectures": ["EvilForCausalLM"],
    "model_type": "evil",
    "auto_map": {"AutoModel": "evil.Model"},
}


@pytest.mark.parametrize(
    ("config", "weights", "reason"),
    [
        (None, "", "no model folder"),
        (SHAPE | EVIL, "model.safetensors", "auto_map"),
        (SHAPE, "pytorch_model.bin", "pickle"),
    ],
)
def test_a_model_that_is_refused_is_named_on_standard_error(
    tmp_path: Path, config: dict[str, object] | None, weights: str, reason: str
) -> None:
    folder = tmp_path / "model"
    if config is not None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / weights).write_bytes(b"\x80\x04")
        (folder / "evil.py").write_text("raise SystemExit('imported')")
    server = start(tmp_path, model=str(folder))
    try:
        assert server.process.wait(60) == 1
        lines = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines()]
        assert lines[-1]["message"] == "engine failed"
        assert reason in lines[-1]["reason"].lower()
        assert "imports" not in [line.get("stage") for line in lines]
    finally:
        end(server)


def test_a_taken_address_is_a_clear_error(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "yaie", "serve", MODEL, "--port", str(server.port)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("Address already in use. Another --port may be free.")


def test_the_log_says_what_each_request_took_and_nothing_of_what_it_said(server: Server) -> None:
    """One line for a whole answer and one for a stream; probes have none."""
    log = server.journal.with_name("serve.log")
    begun = len(log.read_text())
    message = {"role": "user", "content": "The secret word is xylophone."}
    body = {"model": "demo", "messages": [message], "max_tokens": 5, "ignore_eos": True}
    headers = {"authorization": "Bearer hunter2"}
    for stream in (False, True):
        server.call("/v1/chat/completions", body | {"stream": stream}, headers=headers)
    server.call("/readyz")
    server.wait_for(lambda: log.read_text()[begun:].count('"message": "request"') == 2)
    text = log.read_text()[begun:]
    first, second = (json.loads(line) for line in text.splitlines() if '"request"' in line)
    assert (first["method"], first["path"], first["status"]) == (
        "POST",
        "/v1/chat/completions",
        200,
    )
    assert first["tokens_in"] == second["tokens_in"] > 5
    assert first["tokens_out"] == second["tokens_out"] == 5
    assert (first["cached"], second["cached"] > 0) == (0, True)
    assert 0 < first["ttft"] <= first["seconds"]
    assert "xylophone" not in text
    assert "hunter2" not in text
